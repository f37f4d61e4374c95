"""The values of one value state on the heap, with the changes of an epoch.

For every key that the current epoch changed, the table has a record: the key group, the state
before the epoch and the current state (None: absent). The records serve for the epoch's changelog
and for a rollback, so both cost O(changes) (I6, I7). The last sealed epoch can be undone until the
next epoch is sealed.

Tables, records and snapshots share state objects. So a table replaces state objects, and never
changes a state object in place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from sys import getsizeof
from typing import Any, Generic, TypeVar

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap.copy_on_write_state_map import CopyOnWriteStateMap
from spark_state.heap.copy_on_write_state_table import CopyOnWriteStateTable
from spark_state.heap.heap_memory import bytes_of_values
from spark_state.heap.packed_entries import FoundEntry, KeyGroupSnapshot, PackedEntries, packs_of
from spark_state.heap.state_map_entry import Bucket
from spark_state.keyed_state.current_key import CurrentKey, Key
from spark_state.keyed_state.object_sizes import FEW, bytes_of, bytes_of_entries
from spark_state.keyed_state.state_rows import (
    StateEntries,
    StateRows,
    StateSerializer,
    growth_of,
)

S = TypeVar("S")

_Change = tuple[int, S | None, S | None]
"""The key group, the state before the epoch, and the current state."""


class HeapStateTable(Generic[S]):
    """The values of one state, with the changes of the current and the last sealed epoch: a
    KeyedStateTable and BackendTable."""

    def __init__(
        self,
        name: str,
        serializer: StateSerializer[S],
        key_groups: KeyGroupRange,
        current: CurrentKey,
    ) -> None:
        self.name = name
        self.serializer = serializer
        self._entries: CopyOnWriteStateTable[Key, S] = CopyOnWriteStateTable(key_groups)
        self._changes: dict[Key, _Change[S]] = {}
        self._sealed: dict[Key, _Change[S]] = {}
        self._current = current
        self._packs: list[PackedEntries[S]] = []
        # Keys that are in no pack, of which some are in no map either.
        self._unpacked: set[Key] = set()
        # The entry of the last key is cached, so several calls for one key need one look-up.
        self._key: Key | None = None
        self._map: CopyOnWriteStateMap[Key, S] = self._entries.map_for(key_groups.start)
        self._entry: Bucket[Key, S] = None

    def __len__(self) -> int:
        return len(self._entries) + sum(map(len, self._packs))

    def pack(self, parts: Sequence[StateRows]) -> None:
        """Set the entries of an empty table from the rows of files. `parts`: in the order in which
        the files are applied. The rows stay Arrow columns until their first use."""
        assert not len(self), "the table is not empty"
        self._forget_found()
        self._unpacked.clear()
        self._packs = [pack for pack in packs_of(parts) if len(pack)]

    def read_ahead(self, keys: Sequence[Key], key_groups: Sequence[int]) -> None:
        """Move the packed entries of these keys to the maps. Moving many entries together takes a
        fraction of the time of moving each entry alone."""
        if not self._packs:
            return
        self._forget_found()
        map_for, with_groups = self._entries.map_for, zip(keys, key_groups, strict=True)
        wanted = {
            key: key_group for key, key_group in with_groups if map_for(key_group).find(key) is None
        }
        self._unpack(wanted)
        self._unpacked = {*wanted}

    def _unpack(self, wanted: Mapping[Key, int]) -> None:
        """Move the packed entries of the keys `wanted` to the maps. `wanted`: key -> key group."""
        for pack, entry in self._found(wanted):
            self._entries.map_for(entry.key_group).put(entry.key, entry.state)
            # Only now: if memory ends in between, no entry is lost.
            pack.leave_out(entry)
        self._compact()

    def _found(self, wanted: Mapping[Key, int]) -> Iterator[tuple[PackedEntries[S], FoundEntry[S]]]:
        """Yield the packed entries of the keys `wanted`, each with its pack."""
        for pack in self._packs:
            groups = pack.sizes()
            in_pack = [key for key, key_group in wanted.items() if key_group in groups]
            if in_pack:
                yield from zip(repeat(pack), pack.find(in_pack))

    def _compact(self) -> None:
        for pack in self._packs:
            pack.compact()
        self._packs = [pack for pack in self._packs if len(pack)]

    def _find(self) -> None:
        current = self._current
        self._map = self._entries.map_for(current.key_group)
        self._entry = self._map.find(current.key)
        if self._entry is None and self._packs and current.key not in self._unpacked:
            self._unpack({current.key: current.key_group})
            self._unpacked.add(current.key)
            self._entry = self._map.find(current.key)
        self._key = current.key

    def _forget_found(self) -> None:
        """Clear the cached entry. Call this before a change of the maps for a key other than the
        current key."""
        self._key = self._entry = None

    def get(self) -> S | None:
        if self._key is not self._current.key:
            self._find()
        entry = self._entry
        return None if entry is None else entry.state

    def put(self, state: S) -> None:
        key = self._current.key
        if self._key is not key:
            self._find()
        entry = self._entry
        before = None if entry is None else entry.state
        noted = self._changes.get(key)
        if noted is not None:
            before = noted[1]
        self._changes[key] = (self._current.key_group, before, state)
        if entry is None:
            self._entry = self._map.insert(key, state)
        else:
            self._entry = self._map.replace(entry, state)

    def remove(self) -> None:
        key = self._current.key
        if self._key is not key:
            self._find()
        entry = self._entry
        if entry is not None:
            noted = self._changes.get(key)
            before = entry.state if noted is None else noted[1]
            self._changes[key] = (self._current.key_group, before, None)
            self._map.remove_found(entry)
            self._entry = None

    def number_of_changes(self) -> int:
        return len(self._changes)

    def changes(self) -> StateEntries:
        changes = self._changes.values()
        return StateEntries(
            self.name,
            self.serializer,
            list(self._changes),
            list(map(itemgetter(0), changes)),
            list(map(itemgetter(2), changes)),
            growth_of(changes),
        )

    def seal(self) -> None:
        self._sealed = self._end_changes()

    def rollback(self) -> None:
        self._put_back(self._end_changes())

    def undo_sealed(self) -> None:
        assert not self._changes, "an epoch is running"
        self._forget_found()
        sealed, self._sealed = self._sealed, {}
        self._put_back(sealed)

    def _end_changes(self) -> dict[Key, _Change[S]]:
        """End the current epoch and return its records, by key."""
        self._forget_found()
        changes, self._changes = self._changes, {}
        return changes

    def _put_back(self, changes: dict[Key, _Change[S]]) -> None:
        for key, (key_group, before, _) in changes.items():
            entries = self._entries.map_for(key_group)
            if before is None:
                entries.remove(key)
            else:
                entries.put(key, before)

    def apply(self, entries: StateEntries) -> None:
        assert not self._changes, "an epoch is running"
        self._forget_found()
        if self._packs:
            wanted = dict(zip(entries.keys, entries.key_groups, strict=True))
            for pack, entry in self._found(wanted):
                pack.leave_out(entry)  # the file has a newer state, or deletes the key
            self._compact()
        map_for = self._entries.map_for
        rows = zip(entries.keys, entries.key_groups, entries.states, strict=True)
        for key, key_group, state in rows:
            if state is None:
                map_for(key_group).remove(key)
            else:
                map_for(key_group).put(key, state)
        self._sealed = {}

    def sizes(self) -> dict[int, int]:
        sizes = Counter(self._entries.sizes())
        for pack in self._packs:
            sizes.update(pack.sizes())
        return sizes

    def memory_bytes(self, looked_at: int = FEW) -> int:
        """Estimate the bytes of values and keys in the maps from a sample of about `looked_at`
        entries, see heap_memory, plus the bytes of the packs."""
        packed = sum(pack.memory_bytes() for pack in self._packs)
        return packed + bytes_of_values(self._entries.maps(), looked_at)

    def undo_bytes(self, looked_at: int) -> int:
        """Estimate the bytes of the undo records of the current and the last sealed epoch."""
        return sum(
            bytes_of_entries(changes, _undo_bytes, looked_at)
            for changes in (self._changes, self._sealed)
        )

    def snapshot(self, key_groups: KeyGroupRange) -> Mapping[int, KeyGroupSnapshot[S]]:
        """Take a snapshot of the entries of `key_groups`, without copying the entries."""
        in_maps = self._entries.snapshot(key_groups)
        packs = [pack.snapshot() for pack in self._packs]
        return {
            key_group: KeyGroupSnapshot(key_group, in_maps.get(key_group), packs)
            for key_group in key_groups
        }

    @staticmethod
    def rows_of(state: S) -> tuple[S]:
        """Return the state of one key as rows for a file: a single row."""
        return (state,)


def _undo_bytes(change: _Change[Any]) -> int:
    """Estimate the bytes of a record, without the key's current state, which counts as part of the
    maps."""
    return getsizeof(change) + bytes_of(change[1])
