"""A chained hash map with incremental rehash. A snapshot of the map copies no entry.

The map has a version number. Taking a snapshot raises the version and copies the bucket arrays. An
entry older than the newest open snapshot (`entry_version < highest_required_snapshot_version`)
counts as shared with a snapshot. Before a shared entry is changed, the map copies it, and all
shared entries before it in the same chain. The map copies a shared state only for a caller who
wants to change the state in place (`own_found`); reading (`get`) copies nothing. A growing map
moves a few buckets with every operation, so no operation has to move the whole map.

Source: the behaviour of Apache Flink's CopyOnWriteStateMap.

Only one thread may use a map. Other threads may call `release_snapshot` and read snapshots.

Keys are immutable. The low bits of their hashes must vary, as in the hashes of tuples and strings.
Do not use plain integers as keys: the hash of an integer is the integer itself, so consecutive
integers leave long runs of empty buckets, and a growing map walks a whole run in one operation.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Generic, TypeVar

from spark_state.heap.copy_on_write_state_map_snapshot import (
    BUCKETS_AT_ONCE,
    CopyOnWriteStateMapSnapshot,
)
from spark_state.heap.state_map_entry import Bucket, StateMapEntry

K = TypeVar("K")
S = TypeVar("S")

DEFAULT_CAPACITY = 128
MAXIMUM_CAPACITY = 1 << 30
MIN_TRANSFERRED_PER_INCREMENTAL_REHASH = 4


def chain(entry: Bucket[K, S]) -> Iterator[StateMapEntry[K, S]]:
    """Yield the entries of a chain, from `entry` to the end."""
    while entry is not None:
        yield entry
        entry = entry.next


class CopyOnWriteStateMap(Generic[K, S]):
    """A map from key to state. A state is never None: None means absent. `copy_state` copies a
    state for `own_found`. `capacity` is the number of buckets at the start, a power of two."""

    def __init__(
        self, copy_state: Callable[[S], S] = deepcopy, capacity: int = DEFAULT_CAPACITY
    ) -> None:
        self._copy_state = copy_state
        self._lock = threading.Lock()
        self.state_map_version = 0
        self.snapshot_versions: set[int] = set()
        # Read without the lock. If another thread has just released a snapshot, the value is too
        # high, and the map copies an entry that no snapshot shares any more.
        self.highest_required_snapshot_version = 0
        self.primary_table: list[Bucket[K, S]] = [None] * capacity
        self.incremental_rehash_table: list[Bucket[K, S]] = []
        self.primary_table_size = 0
        self.incremental_rehash_table_size = 0
        self.rehash_index = 0
        self.threshold = capacity * 3 // 4

    def __len__(self) -> int:
        return self.primary_table_size + self.incremental_rehash_table_size

    def get(self, key: K) -> S | None:
        """Return the state of a key, None if absent. The caller must not change the state, because
        a snapshot may share it."""
        entry = self.find(key)
        return None if entry is None else entry.state

    def find(self, key: K) -> Bucket[K, S]:
        """Return the entry of a key, None if absent. The caller may read the entry, or pass it to
        `replace`, `own_found` or `remove_found`. The entry is valid until the next operation on the
        map."""
        code = hash(key)
        table = self.primary_table
        if self.incremental_rehash_table:
            self._rehash_step()
            table = self._table_of(code)
        entry = table[code & (len(table) - 1)]
        while entry is not None:
            if entry.hash == code and entry.key == key:
                return entry
            entry = entry.next
        return None

    def replace(self, entry: StateMapEntry[K, S], state: S) -> StateMapEntry[K, S]:
        """Set the state of an entry and return the entry that now has the state. The last operation
        on the map, `find` or `replace`, must have returned `entry`. If a snapshot shares `entry`,
        the result is a copy of `entry`."""
        required = self.highest_required_snapshot_version
        if entry.entry_version < required:
            table = self._table_of(entry.hash)
            entry = self._copy_prefix(table, entry.hash, entry, required)
        entry.state = state
        entry.state_version = self.state_map_version
        return entry

    def insert(self, key: K, state: S) -> StateMapEntry[K, S]:
        """Add an entry for a key, and return the new entry. The key must have no entry: directly
        before, call `find` for the key, and remove the found entry, if any. The new entry can be
        used like an entry from `find`."""
        code = hash(key)
        version = self.state_map_version
        entry = StateMapEntry(key, code, state, None, version, version)
        table = self._table_of(code) if self.incremental_rehash_table else self.primary_table
        index = code & (len(table) - 1)
        entry.next = table[index]
        table[index] = entry
        if table is self.primary_table:
            self.primary_table_size += 1
        else:
            self.incremental_rehash_table_size += 1
        # A map that is not growing has only the primary table.
        if self.primary_table_size > self.threshold and not self.incremental_rehash_table:
            self._begin_rehash()
        return entry

    def own_found(self, entry: StateMapEntry[K, S]) -> StateMapEntry[K, S]:
        """Make sure that no snapshot shares the state of an entry: copy the state if necessary.
        Returns the entry that now has the state, which the caller may change in place until the
        next snapshot. The conditions for `entry` are the same as in `replace`."""
        required = self.highest_required_snapshot_version
        if entry.state_version < required:
            return self.replace(entry, self._copy_state(entry.state))
        return entry

    def put(self, key: K, state: S) -> None:
        """Set the state of a key. If a snapshot may share `state`, for example because an undo puts
        an old state back, the caller must never change `state` in place."""
        entry = self.find(key)
        if entry is None:
            self.insert(key, state)
        else:
            self.replace(entry, state)

    def remove(self, key: K) -> None:
        """Remove the entry of a key, if present."""
        entry = self.find(key)
        if entry is not None:
            self.remove_found(entry)

    def remove_found(self, entry: StateMapEntry[K, S]) -> None:
        """Remove an entry. An operation on the map must have returned `entry`, and no later
        operation may have copied or removed `entry`."""
        code = entry.hash
        table = self._table_of(code) if self.incremental_rehash_table else self.primary_table
        index = code & (len(table) - 1)
        previous: Bucket[K, S] = None
        of_chain = table[index]
        while of_chain is not entry:
            assert of_chain is not None, "the entry is in this chain"
            previous, of_chain = of_chain, of_chain.next
        if previous is None:
            table[index] = entry.next
        else:
            required = self.highest_required_snapshot_version
            if previous.entry_version < required:
                previous = self._copy_prefix(table, code, previous, required)
            previous.next = entry.next
        if table is self.primary_table:
            self.primary_table_size -= 1
        else:
            self.incremental_rehash_table_size -= 1

    def __iter__(self) -> Iterator[tuple[K, S]]:
        """Yield (key, state) of every entry. No other operation on the map is allowed during the
        iteration, because every operation on a growing map moves entries."""
        for head in (*self.primary_table, *self.incremental_rehash_table):
            for entry in chain(head):
                yield entry.key, entry.state

    def snapshot(self) -> CopyOnWriteStateMapSnapshot[K, S]:
        """Take a snapshot of the current entries. Copies the bucket arrays, but no entry."""
        buckets = self._buckets_of_snapshot()
        with self._lock:
            self.state_map_version += 1
            version = self.state_map_version
            self.snapshot_versions.add(version)
            self.highest_required_snapshot_version = version
        return CopyOnWriteStateMapSnapshot(
            version, buckets, len(self), self.rehash_index, self.release_snapshot
        )

    def _buckets_of_snapshot(self) -> list[Bucket[K, S]]:
        """Copy the buckets in pieces, because no other thread runs while Python copies a list."""
        half, moved = len(self.primary_table), self.rehash_index
        rehashed = self.incremental_rehash_table
        buckets: list[Bucket[K, S]] = []
        for table, start, end in (
            (self.primary_table, moved, half),
            (rehashed, 0, moved),
            (rehashed, half, half + moved),
        ):
            for piece in range(start, end, BUCKETS_AT_ONCE):
                buckets += table[piece : min(piece + BUCKETS_AT_ONCE, end)]
        return buckets

    def release_snapshot(self, version: int) -> None:
        """Forget a snapshot, so that the map no longer copies entries for it. `version`: the
        snapshot's version. Safe to call again."""
        with self._lock:
            self.snapshot_versions.discard(version)
            self.highest_required_snapshot_version = max(self.snapshot_versions, default=0)

    def _copy_prefix(
        self,
        table: list[Bucket[K, S]],
        code: int,
        last: StateMapEntry[K, S],
        required: int,
    ) -> StateMapEntry[K, S]:
        """Copy the shared entries of a chain up to and including `last`. Returns the entry that now
        stands for `last`.

        An entry that no snapshot shares is private. Private entries come first in a chain, and all
        entries behind a shared entry are shared: new entries go to the head, and this method copies
        the beginning of a chain. The map never sets the link of a shared entry:

            before     head -> A -> B -> C          a snapshot also begins at A
            after      head -> A' -> B' -> C        the map changed B; A' and B' are private copies
                   snapshot -> A -> B -> C
        """
        index = code & (len(table) - 1)
        previous: Bucket[K, S] = None
        entry = table[index]
        while True:
            assert entry is not None, "the entry is in this chain"
            private = entry
            if entry.entry_version < required:
                private = self._copy_entry(entry)
                if previous is None:
                    table[index] = private
                else:
                    previous.next = private
            if entry is last:
                return private
            previous, entry = private, entry.next

    def _copy_entry(self, entry: StateMapEntry[K, S]) -> StateMapEntry[K, S]:
        return StateMapEntry(
            entry.key,
            entry.hash,
            entry.state,
            entry.next,
            self.state_map_version,
            entry.state_version,
        )

    def _begin_rehash(self) -> None:
        capacity = len(self.primary_table)
        if capacity >= MAXIMUM_CAPACITY:
            self.threshold = sys.maxsize
            return
        self.incremental_rehash_table = [None] * (2 * capacity)
        self.threshold = 2 * capacity * 3 // 4
        self.rehash_index = 0

    def _table_of(self, code: int) -> list[Bucket[K, S]]:
        primary = self.primary_table
        if code & (len(primary) - 1) >= self.rehash_index:
            return primary
        return self.incremental_rehash_table

    def _rehash_step(self) -> None:
        """Move whole buckets to the new table, until MIN_TRANSFERRED_PER_INCREMENTAL_REHASH entries
        or more have moved."""
        old, new = self.primary_table, self.incremental_rehash_table
        required = self.highest_required_snapshot_version
        mask = len(new) - 1
        index, moved = self.rehash_index, 0
        while moved < MIN_TRANSFERRED_PER_INCREMENTAL_REHASH and index < len(old):
            entry = old[index]
            while entry is not None:
                following = entry.next
                # A move sets the link of the entry, and a snapshot still follows the old link.
                if entry.entry_version < required:
                    entry = self._copy_entry(entry)
                target = entry.hash & mask
                entry.next = new[target]
                new[target] = entry
                moved += 1
                entry = following
            old[index] = None
            index += 1
        self.primary_table_size -= moved
        self.incremental_rehash_table_size += moved
        self.rehash_index = index
        if index == len(old):
            assert not self.primary_table_size
            self.primary_table, self.incremental_rehash_table = new, []
            self.primary_table_size = self.incremental_rehash_table_size
            self.incremental_rehash_table_size = self.rehash_index = 0
