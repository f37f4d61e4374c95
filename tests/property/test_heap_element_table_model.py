"""A heap table of elements that become due agrees with dicts that are copied at every step.

The current key changes only now and then. Meanwhile epochs are sealed, rolled back and undone, and
snapshots are taken.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap.copy_on_write_state_table import CopyOnWriteStateTableSnapshot
from spark_state.heap.element_maps import Elements
from spark_state.heap.heap_element_table import HeapElementTable
from spark_state.keyed_state.current_key import CurrentKey
from spark_state.keyed_state.state_rows import StateEntries

KEY_GROUPS = KeyGroupRange(0, 2)
Contents = dict[tuple[int], dict[int, tuple[int]]]
Snapshot = CopyOnWriteStateTableSnapshot[Any, Elements[Any, Any]]


class Numbers:
    """A form of state with numbers as elements, and with the time when an element is due as its
    value."""

    struct_type = pa.struct([])

    def deletes(self, states: Sequence[Any]) -> list[bool]:
        return [state is None or state[1] is None for state in states]

    def to_arrow(self, states: Any) -> Any:
        raise AssertionError("nothing is written")

    def from_arrow(self, array: Any) -> Any:
        raise AssertionError("nothing is read")


def key_group(key: tuple[int]) -> int:
    return key[0] % 3


keys, elements, times = st.integers(0, 4), st.integers(0, 5), st.integers(0, 5)
calls = st.one_of(
    st.tuples(st.just("key"), keys),
    st.tuples(st.just("put"), elements, times),
    st.tuples(st.just("append"), st.lists(times, max_size=3)),
    st.tuples(st.sampled_from(["remove", "get"]), elements),
    st.tuples(st.sampled_from(["elements", "clear"])),
    st.tuples(st.sampled_from(["seal", "seal", "rollback", "undo", "snapshot", "read"])),
    st.tuples(st.just("apply"), keys, st.none() | st.tuples(elements, st.none() | times)),
)


@dataclass
class Script:
    """The table, its expected content, and the contents for a possible undo."""

    current: CurrentKey = field(default_factory=lambda: CurrentKey(0))
    key: tuple[int] = (0,)
    now: Contents = field(default_factory=dict)
    base: Contents = field(default_factory=dict)
    sealed_from: Contents | None = None
    snapshots: list[tuple[Snapshot, Contents]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table: HeapElementTable[int, tuple[int]] = HeapElementTable(
            "n", Numbers(), KEY_GROUPS, self.current, lambda _, value: value[0]
        )
        self.run(("key", 0))

    def run(self, call: tuple[Any, ...]) -> None:
        table, of_key = self.table, self.now.setdefault(self.key, {})
        match call:
            case "key", number:
                self.key = (number,)
                self.current.key, self.current.key_group = self.key, key_group(self.key)
            case "put", element, due_ms:
                table.put(element, (due_ms,))
                of_key[element] = (due_ms,)
            case "append", due:
                table.append([(due_ms,) for due_ms in due])
                appended = [entry for entry in table.elements() if entry[0] not in of_key]
                # The table may skip numbers, but never uses a number again while the key has
                # elements.
                assert [value for _, value in appended] == [(due_ms,) for due_ms in due]
                assert all(number > max(of_key, default=-1) for number, _ in appended)
                of_key.update(appended)
            case "remove", element:
                table.remove(element)
                of_key.pop(element, None)
            case "get", element:
                assert table.get(element) == of_key.get(element)
            case ("elements",):
                assert table.elements() == sorted(of_key.items())
                assert table.exists() == bool(of_key)
            case ("clear",):
                table.clear()
                of_key.clear()
            case _:
                self.end_or_look(call)
        self.now = {key: held for key, held in self.now.items() if held}

    def end_or_look(self, call: tuple[Any, ...]) -> None:
        table = self.table
        match call:
            case ("seal",):
                table.seal()
                self.sealed_from, self.base = self.base, copy.deepcopy(self.now)
            case ("rollback",):
                self.roll_back()
            case ("undo",) if self.sealed_from is not None:
                self.roll_back()
                table.undo_sealed()
                self.now, self.base = copy.deepcopy(self.sealed_from), self.sealed_from
                self.sealed_from = None
            case ("apply", number, row):
                self.roll_back()
                key = (number,)
                changed = row and (row[0], None if row[1] is None else (row[1],))
                table.apply(StateEntries("n", Numbers(), [key], [key_group(key)], [changed]))
                follow(self.now, key, changed)
                self.base, self.sealed_from = copy.deepcopy(self.now), None
            case ("snapshot",):
                self.snapshots.append((table.snapshot(KEY_GROUPS), copy.deepcopy(self.now)))
            case ("read",) if self.snapshots:
                snapshot, held = self.snapshots.pop(0)
                by_group = [snapshot.of_key_group(group) for group in KEY_GROUPS]
                read = [entry for entries in by_group if entries is not None for entry in entries]
                assert {key: dict(table.rows_of(held_by)) for key, held_by in read} == {
                    key: elements for key, elements in held.items() if elements
                }
                snapshot.release_all()

    def roll_back(self) -> None:
        self.table.rollback()
        self.now = copy.deepcopy(self.base)

    def check(self) -> None:
        """Assert that the base with the changelog gives the table's content, and that the due times
        agree."""
        changes = self.table.changes()
        followed = copy.deepcopy(self.base)
        for key, row in zip(changes.keys, changes.states, strict=True):
            follow(followed, key, row)
        assert {key: held for key, held in followed.items() if held} == self.now
        assert [key_group(key) for key in changes.keys] == changes.key_groups
        due = sorted(
            (value[0], key, element)
            for key, held in self.now.items()
            for element, value in held.items()
        )
        reported = [(due_ms, key, element) for due_ms, (_, key, element) in self.table.due(3)]
        assert sorted(reported) == [entry for entry in due if entry[0] <= 3]
        assert self.table.next_due_ms() == (due[0][0] if due else None)
        self.table.check_invariants()


def follow(contents: Contents, key: tuple[int], row: Any) -> None:
    """Apply a row of a changelog."""
    held = contents.setdefault(key, {})
    if row is None:
        held.clear()
    elif row[1] is None:
        held.pop(row[0], None)
    else:
        held[row[0]] = row[1]
    if not held:
        del contents[key]


@settings(max_examples=400)
@given(st.lists(calls, max_size=40))
def test_every_change_is_in_the_changelog_and_can_be_undone(script: list[tuple[Any, ...]]) -> None:
    model = Script()
    for call in script:
        model.run(call)
        model.check()
