"""A chained hash map with incremental rehash, whose snapshots copy no entry.

The map carries a version. A snapshot raises it and takes the bucket arrays; from then on an entry
older than the newest snapshot still in use (`entry_version < highest_required_snapshot_version`) is
shared with a snapshot, and is copied before it is changed, together with the shared entries before
it in its chain. A state older than that is copied only for a caller who is to change it (`own`); to
read one (`get`) copies nothing. Growing moves a few buckets with every operation, so none pauses
for the whole map.

Source: the behaviour of Apache Flink's CopyOnWriteStateMap.

One thread owns a map. Only `release_snapshot`, and reading a snapshot, may happen in another.

Keys and namespaces are immutable, and the low bits of their hashes are spread, as those of tuples
and strings are. Bare consecutive integers hash to themselves, which leaves long runs of empty
buckets for a growing map to walk in one operation.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import islice
from typing import Generic, TypeVar

from spark_state.heap.copy_on_write_state_map_snapshot import (
    BUCKETS_AT_ONCE,
    CopyOnWriteStateMapSnapshot,
)
from spark_state.heap.state_map_entry import Bucket, StateMapEntry

K = TypeVar("K")
N = TypeVar("N")
S = TypeVar("S")

DEFAULT_CAPACITY = 128
MAXIMUM_CAPACITY = 1 << 30
MIN_TRANSFERRED_PER_INCREMENTAL_REHASH = 4


def chain(entry: Bucket[K, N, S]) -> Iterator[StateMapEntry[K, N, S]]:
    """An entry of a bucket, and those behind it."""
    while entry is not None:
        yield entry
        entry = entry.next


class CopyOnWriteStateMap(Generic[K, N, S]):
    """State by (key, namespace). A state is never None: None means absent.

    `copy_state` copies a state for `own`; `capacity`: of the first table, a power of two. A
    namespace of None is the void namespace.
    """

    def __init__(
        self, copy_state: Callable[[S], S] = deepcopy, capacity: int = DEFAULT_CAPACITY
    ) -> None:
        if capacity < 1 or capacity & (capacity - 1) or capacity > MAXIMUM_CAPACITY:
            raise ValueError(f"capacity {capacity} is no power of two up to {MAXIMUM_CAPACITY}")
        self._copy_state = copy_state
        self._lock = threading.Lock()
        self.state_map_version = 0
        self.snapshot_versions: set[int] = set()
        # Read without the lock: when another thread has just released a snapshot, this is too high,
        # and an entry is copied that nobody shares any more.
        self.highest_required_snapshot_version = 0
        self.primary_table: list[Bucket[K, N, S]] = [None] * capacity
        self.incremental_rehash_table: list[Bucket[K, N, S]] = []
        self.primary_table_size = 0
        self.incremental_rehash_table_size = 0
        self.rehash_index = 0
        self.threshold = capacity * 3 // 4
        self.mod_count = 0

    def __len__(self) -> int:
        return self.primary_table_size + self.incremental_rehash_table_size

    def get(self, key: K, namespace: N) -> S | None:
        """The state, for reading: a snapshot may share it. None when absent."""
        entry = self.find(key, namespace)
        return None if entry is None else entry.state

    def find(self, key: K, namespace: N) -> Bucket[K, N, S]:
        """The entry, for reading, and for `replace`; None when absent. It is the map's until the
        next operation on the map."""
        code = hash(key) if namespace is None else hash((key, namespace))
        table = self.primary_table
        if self.incremental_rehash_table:
            table = self._rehash_and_choose(code)
        entry = table[code & (len(table) - 1)]
        while entry is not None:
            if entry.hash == code and entry.key == key and entry.namespace == namespace:
                return entry
            entry = entry.next
        return None

    def replace(self, entry: StateMapEntry[K, N, S], state: S) -> StateMapEntry[K, N, S]:
        """Set the state of an entry that the last operation on the map, `find` or `replace`, has
        returned. Returns the entry that has it now, another one if a snapshot shares the first."""
        required = self.highest_required_snapshot_version
        if entry.entry_version < required:
            table = self._table_of(entry.hash)
            entry = self._copy_prefix(table, entry.hash, entry, required)
        entry.state = state
        entry.state_version = self.state_map_version
        return entry

    def insert(self, key: K, namespace: N, state: S) -> StateMapEntry[K, N, S]:
        """Set the state of a key without one: the last operation on the map, `find`, has returned
        None for it, or the last two have found and removed it. Returns its entry, which is like one
        that was found."""
        code = hash(key) if namespace is None else hash((key, namespace))
        version = self.state_map_version
        entry = StateMapEntry((key, namespace, code), state, None, version, version)
        table = self._table_of(code) if self.incremental_rehash_table else self.primary_table
        self._insert(table, code & (len(table) - 1), entry)
        return entry

    def own(self, key: K, namespace: N) -> S | None:
        """The state, which the caller may change until the next snapshot; None when absent."""
        entry = self.find(key, namespace)
        return None if entry is None else self.own_found(entry).state

    def own_found(self, entry: StateMapEntry[K, N, S]) -> StateMapEntry[K, N, S]:
        """As `replace`, with the state that the entry has: the caller may change that state until
        the next snapshot."""
        required = self.highest_required_snapshot_version
        if entry.state_version < required:
            return self.replace(entry, self._copy_state(entry.state))
        return entry

    def contains(self, key: K, namespace: N) -> bool:
        """Whether there is a state; copies nothing."""
        return self.find(key, namespace) is not None

    def put(self, key: K, namespace: N, state: S) -> None:
        """Set the state."""
        self.put_and_get_old(key, namespace, state)

    def put_and_get_old(self, key: K, namespace: N, state: S) -> S | None:
        """Set the state and return the one before, None when there was none.

        The state before may be shared with a snapshot. It is not copied, because callers keep it
        only to undo the put: it must not be changed, nor after it has been put back.
        """
        code = hash(key) if namespace is None else hash((key, namespace))
        table = self.primary_table
        if self.incremental_rehash_table:
            table = self._rehash_and_choose(code)
        index = code & (len(table) - 1)
        entry = table[index]
        while entry is not None:
            if entry.hash == code and entry.key == key and entry.namespace == namespace:
                required = self.highest_required_snapshot_version
                if entry.entry_version < required:
                    entry = self._copy_prefix(table, code, entry, required)
                before = entry.state
                entry.state = state
                entry.state_version = self.state_map_version
                return before
            entry = entry.next
        self._insert(
            table,
            index,
            StateMapEntry(
                (key, namespace, code), state, None, self.state_map_version, self.state_map_version
            ),
        )
        return None

    def remove(self, key: K, namespace: N) -> None:
        """Remove the entry, if there is one."""
        self.remove_and_get_old(key, namespace)

    def remove_and_get_old(self, key: K, namespace: N) -> S | None:
        """Remove the entry and return its state, None when there was none.

        As with `put_and_get_old` it is not copied and must not be changed.
        """
        entry = self.find(key, namespace)
        return None if entry is None else self.remove_found(entry)

    def remove_found(self, entry: StateMapEntry[K, N, S]) -> S:
        """Remove an entry that an operation on the map has returned, and that none has copied or
        removed since. Returns its state, as `remove_and_get_old` does."""
        code = entry.hash
        table = self._table_of(code) if self.incremental_rehash_table else self.primary_table
        index = code & (len(table) - 1)
        previous: Bucket[K, N, S] = None
        of_chain = table[index]
        while of_chain is not entry:
            assert of_chain is not None, "the entry is in this chain"
            previous, of_chain = of_chain, of_chain.next
        self._unlink(table, index, previous, entry)
        return entry.state

    def __iter__(self) -> Iterator[tuple[K, N, S]]:
        """(key, namespace, state) of every entry, for reading.

        States may be read and set meanwhile. Raises RuntimeError when entries come or go.
        """
        # Any operation moves entries of a growing map, so iterating one would meet some twice.
        while self.incremental_rehash_table:
            self._rehash_step()
        expected = self.mod_count
        for index, entry in enumerate(self.primary_table):
            place = 0
            while entry is not None:
                yield entry.key, entry.namespace, entry.state
                if self.mod_count != expected:
                    raise RuntimeError(
                        "the map was changed while it was iterated: an entry was added or "
                        "removed; collect what to change first"
                    )
                # An own or put may have replaced this entry and its next by private copies.
                place += 1
                entry = next(islice(chain(self.primary_table[index]), place, None), None)

    def snapshot(self) -> CopyOnWriteStateMapSnapshot[K, N, S]:
        """The entries of this moment: a copy of the bucket arrays, of no entry."""
        buckets = self._buckets_of_snapshot()
        with self._lock:
            self.state_map_version += 1
            version = self.state_map_version
            self.snapshot_versions.add(version)
            self.highest_required_snapshot_version = version
        return CopyOnWriteStateMapSnapshot(
            version, buckets, len(self), self.rehash_index, self.release_snapshot
        )

    def _buckets_of_snapshot(self) -> list[Bucket[K, N, S]]:
        """Copied in pieces, because no other thread runs while a list is copied."""
        half, moved = len(self.primary_table), self.rehash_index
        rehashed = self.incremental_rehash_table
        buckets: list[Bucket[K, N, S]] = []
        for table, start, end in (
            (self.primary_table, moved, half),
            (rehashed, 0, moved),
            (rehashed, half, half + moved),
        ):
            for piece in range(start, end, BUCKETS_AT_ONCE):
                buckets += table[piece : min(piece + BUCKETS_AT_ONCE, end)]
        return buckets

    def release_snapshot(self, version: int) -> None:
        """Forget a snapshot's version; what only it needed dies with it."""
        with self._lock:
            if version not in self.snapshot_versions:
                raise ValueError(f"snapshot {version} is not open: it was released before")
            self.snapshot_versions.remove(version)
            self.highest_required_snapshot_version = max(self.snapshot_versions, default=0)

    def _insert(
        self, table: list[Bucket[K, N, S]], index: int, entry: StateMapEntry[K, N, S]
    ) -> None:
        entry.next = table[index]
        table[index] = entry
        self.mod_count += 1
        if table is self.primary_table:
            self.primary_table_size += 1
        else:
            self.incremental_rehash_table_size += 1
        # Until it grows, the map is its primary table.
        if self.primary_table_size > self.threshold and not self.incremental_rehash_table:
            self._begin_rehash()

    def _unlink(
        self,
        table: list[Bucket[K, N, S]],
        index: int,
        previous: Bucket[K, N, S],
        entry: StateMapEntry[K, N, S],
    ) -> None:
        if previous is None:
            table[index] = entry.next
        else:
            required = self.highest_required_snapshot_version
            if previous.entry_version < required:
                previous = self._copy_prefix(table, previous.hash, previous, required)
            previous.next = entry.next
        self.mod_count += 1
        if table is self.primary_table:
            self.primary_table_size -= 1
        else:
            self.incremental_rehash_table_size -= 1

    def _copy_prefix(
        self,
        table: list[Bucket[K, N, S]],
        code: int,
        last: StateMapEntry[K, N, S],
        required: int,
    ) -> StateMapEntry[K, N, S]:
        """Make the chain private up to and including `last`; returns what stands for `last`.

        In a chain the private entries come first, and behind a shared one all are shared: new
        entries go to the head, and this keeps it so. A link of a shared entry is never set:

            before     head -> A -> B -> C          a snapshot has A, too
            after      head -> A' -> B' -> C        B was changed, as B'
                   snapshot -> A -> B -> C
        """
        index = code & (len(table) - 1)
        previous: Bucket[K, N, S] = None
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

    def _copy_entry(self, entry: StateMapEntry[K, N, S]) -> StateMapEntry[K, N, S]:
        return StateMapEntry(
            (entry.key, entry.namespace, entry.hash),
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

    def _rehash_and_choose(self, code: int) -> list[Bucket[K, N, S]]:
        """Move some buckets if the map is growing; then the table that `code` belongs to."""
        if self.incremental_rehash_table:
            self._rehash_step()
        return self._table_of(code)

    def _table_of(self, code: int) -> list[Bucket[K, N, S]]:
        primary = self.primary_table
        if code & (len(primary) - 1) >= self.rehash_index:
            return primary
        return self.incremental_rehash_table

    def _rehash_step(self) -> None:
        """Move whole buckets until at least the minimum of entries has moved."""
        old, new = self.primary_table, self.incremental_rehash_table
        required = self.highest_required_snapshot_version
        mask = len(new) - 1
        index, moved = self.rehash_index, 0
        while moved < MIN_TRANSFERRED_PER_INCREMENTAL_REHASH and index < len(old):
            entry = old[index]
            while entry is not None:
                following = entry.next
                # Moving an entry sets its link, and a snapshot goes by the old one.
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

    def check_invariants(self) -> None:
        """Assert what must hold between operations."""
        capacity, rehashed = len(self.primary_table), self.incremental_rehash_table
        assert capacity & (capacity - 1) == 0
        assert len(rehashed) in (0, 2 * capacity)
        assert 0 <= self.rehash_index < capacity if rehashed else self.rehash_index == 0
        target = len(rehashed) or capacity
        assert self.threshold == target * 3 // 4 or capacity == MAXIMUM_CAPACITY
        assert rehashed or len(self) <= self.threshold
        assert self.highest_required_snapshot_version == max(self.snapshot_versions, default=0)
        assert all(0 < version <= self.state_map_version for version in self.snapshot_versions)
        identities: set[tuple[K, N]] = set()
        for table, size in (
            (self.primary_table, self.primary_table_size),
            (rehashed, self.incremental_rehash_table_size),
        ):
            before = len(identities)
            for index, head in enumerate(table):
                for entry in chain(head):
                    assert entry.hash & (len(table) - 1) == index
                    assert (entry.hash & (capacity - 1) < self.rehash_index) == (table is rehashed)
                    assert (entry.key, entry.namespace) not in identities
                    identities.add((entry.key, entry.namespace))
                self._check_versions(head)
            assert len(identities) - before == size

    def check_entry(self, key: K, namespace: N, entry: Bucket[K, N, S]) -> None:
        """Assert that this is the entry of a key, None if it has none. Moves nothing."""
        code = hash(key) if namespace is None else hash((key, namespace))
        table = self._table_of(code)
        of_key = [
            held
            for held in chain(table[code & (len(table) - 1)])
            if held.key == key and held.namespace == namespace
        ]
        assert of_key == ([] if entry is None else [entry])

    def _check_versions(self, head: Bucket[K, N, S]) -> None:
        before = None
        for entry in chain(head):
            void = entry.namespace is None
            assert entry.hash == hash(entry.key if void else (entry.key, entry.namespace))
            assert entry.state is not None
            assert 0 <= entry.entry_version <= self.state_map_version
            assert 0 <= entry.state_version <= self.state_map_version
            for version in self.snapshot_versions:
                if entry.entry_version < version:
                    assert entry.state_version < version, "the snapshot would see a later state"
                elif before is not None:
                    assert before.entry_version >= version, "it would see a later entry"
            before = entry
