"""A copy-on-write map beside a plain dict with the same expected content.

Every operation runs on map and dict and compares the results. States from the map are changed on
purpose. Each open snapshot keeps a deep copy of the dict from the time of the snapshot, and the
release of the snapshot compares both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from spark_state.heap import copy_on_write_state_map
from spark_state.heap.copy_on_write_state_map import CopyOnWriteStateMap, chain
from spark_state.heap.copy_on_write_state_map_snapshot import CopyOnWriteStateMapSnapshot

State = list[int]
LONGEST_STATE = 4


class ChosenHashKey:
    """A key whose hash the test chooses. A copy of the key fails the test."""

    __slots__ = ("code", "name")

    def __init__(self, name: int, code: int) -> None:
        self.name = name
        self.code = code

    def __hash__(self) -> int:
        return self.code

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChosenHashKey) and other.name == self.name

    def __copy__(self) -> ChosenHashKey:
        raise AssertionError("keys are never copied")

    def __deepcopy__(self, memo: object) -> ChosenHashKey:
        raise AssertionError("keys are never copied")

    def __repr__(self) -> str:
        return f"key {self.name} (hash {self.code})"


@dataclass
class OpenSnapshot:
    """A snapshot, the expected content, and the entries read so far."""

    snapshot: CopyOnWriteStateMapSnapshot[ChosenHashKey, State]
    expected: dict[int, State]
    reader: Iterator[tuple[ChosenHashKey, State]]
    read: list[tuple[int, State]] = field(default_factory=list)

    def read_some(self, entries: int | None) -> None:
        """Read the next entries, or all remaining entries for None. Copies the states, as a writer
        encodes each state at once."""
        for key, state in islice(self.reader, entries):
            self.read.append((key.name, list(state)))


def check_map(entries: CopyOnWriteStateMap[Any, Any]) -> None:
    """Assert the invariants of a map that hold between operations."""
    capacity, rehashed = len(entries.primary_table), entries.incremental_rehash_table
    assert capacity & (capacity - 1) == 0
    assert len(rehashed) in (0, 2 * capacity)
    assert 0 <= entries.rehash_index < capacity if rehashed else entries.rehash_index == 0
    most = (len(rehashed) or capacity) * 3 // 4
    assert entries.threshold == most or capacity == copy_on_write_state_map.MAXIMUM_CAPACITY
    assert rehashed or len(entries) <= entries.threshold
    versions = entries.snapshot_versions
    assert entries.highest_required_snapshot_version == max(versions, default=0)
    keys: set[Any] = set()
    for table, size in (
        (entries.primary_table, entries.primary_table_size),
        (rehashed, entries.incremental_rehash_table_size),
    ):
        before = len(keys)
        for index, head in enumerate(table):
            previous = None
            for entry in chain(head):
                assert entry.hash & (len(table) - 1) == index
                assert (entry.hash & (capacity - 1) < entries.rehash_index) == (table is rehashed)
                assert entry.key not in keys
                keys.add(entry.key)
                for version in versions:
                    if entry.entry_version < version:
                        assert entry.state_version < version, "the snapshot sees a later state"
                    elif previous is not None:
                        assert previous.entry_version >= version, "it sees a later entry"
                previous = entry
        assert len(keys) - before == size


class StateMapModel:
    """The map under test and its dict."""

    def __init__(self, capacity: int) -> None:
        self.map: CopyOnWriteStateMap[ChosenHashKey, State] = CopyOnWriteStateMap(list, capacity)
        self.expected: dict[int, State] = {}
        self.open: list[OpenSnapshot] = []

    def get(self, key: ChosenHashKey, _item: int) -> None:
        assert self.map.get(key) == self.expected.get(key.name)

    def own(self, key: ChosenHashKey, item: int) -> None:
        """Own a state, compare, and change the returned state."""
        entry, expected = self.map.find(key), self.expected.get(key.name)
        state = None if entry is None else self.map.own_found(entry).state
        assert state == expected
        if state is not None and expected is not None:
            for changed in (state, expected):
                if len(changed) == LONGEST_STATE:
                    changed.clear()
                changed.append(item)

    def put(self, key: ChosenHashKey, item: int) -> None:
        self.map.put(key, [item])
        self.expected[key.name] = [item]

    def put_found(self, key: ChosenHashKey, item: int) -> None:
        """Put as tables do: find the entry once, then set the entry several times."""
        entry = self.map.find(key)
        put = self.map.insert(key, [item]) if entry is None else self.map.replace(entry, [item])
        entry = self.map.own_found(put)
        entry.state.append(item)
        assert self.map.find(key) is entry
        self.expected[key.name] = [item, item]

    def remove(self, key: ChosenHashKey, _item: int) -> None:
        self.map.remove(key)
        self.expected.pop(key.name, None)

    def remove_found(self, key: ChosenHashKey, item: int) -> None:
        """Remove as tables do: find the entry, set the entry, then remove the entry."""
        entry = self.map.find(key)
        before = self.expected.pop(key.name, None)
        assert (None if entry is None else entry.state) == before
        if entry is not None and item % 2:
            self.map.remove_found(self.map.replace(entry, [item]))
        elif entry is not None:
            self.map.remove_found(entry)

    def iterate(self) -> None:
        entries = [(key.name, state) for key, state in self.map]
        assert len(entries) == len(self.map) == len(self.expected)
        assert dict(entries) == self.expected

    def snapshot(self) -> None:
        snapshot = self.map.snapshot()
        expected = {name: list(state) for name, state in self.expected.items()}
        self.open.append(OpenSnapshot(snapshot, expected, iter(snapshot)))

    def look_up(self, place: int, key: ChosenHashKey) -> None:
        """Get a value from an open snapshot, and compare."""
        opened = self.open[place % len(self.open)]
        expected = opened.expected.get(key.name)
        assert opened.snapshot.get(key) == expected

    def release(self, place: int) -> None:
        """Read an open snapshot to its end, compare all entries, and release the snapshot."""
        opened = self.open.pop(place % len(self.open))
        opened.read_some(None)
        assert len(opened.read) == len(opened.snapshot) == len(opened.expected)
        assert dict(opened.read) == opened.expected
        opened.snapshot.release()

    def check(self) -> None:
        check_map(self.map)
        assert len(self.map) == len(self.expected)
        assert sorted(self.map.snapshot_versions) == [
            opened.snapshot.version for opened in self.open
        ]

    def close(self) -> None:
        """Release all snapshots and compare the remaining content."""
        while self.open:
            self.release(0)
        self.iterate()
        self.check()
        assert self.map.highest_required_snapshot_version == 0
