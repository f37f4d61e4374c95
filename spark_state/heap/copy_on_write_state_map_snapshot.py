"""A snapshot of one copy-on-write map. Map and snapshot share the entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from spark_state.heap.state_map_entry import Bucket

K = TypeVar("K")
S = TypeVar("S")

BUCKETS_AT_ONCE = 4096


class CopyOnWriteStateMapSnapshot(Generic[K, S]):
    """The entries of a map at the moment of `CopyOnWriteStateMap.snapshot`.

    The snapshot shares states with the map, so readers must not change a state. Any number of
    threads may look up and iterate while the map's own thread changes the map.

    `buckets`: the map's buckets at that moment. If the map was growing from `capacity` to twice as
    many buckets, the first `moved` old buckets were already split, each into two buckets of the new
    table. Then `buckets` has buckets of both tables, in this order:

        old table   buckets moved ... capacity - 1              not yet split
        new table   buckets 0 ... moved - 1                     first halves of the split buckets
        new table   buckets capacity ... capacity + moved - 1   second halves of the split buckets

    `version`: number of the snapshot. `release`: the map's function that forgets a snapshot.
    """

    def __init__(
        self,
        version: int,
        buckets: list[Bucket[K, S]],
        size: int,
        moved: int,
        release: Callable[[int], None],
    ) -> None:
        self._release = release
        self._buckets = buckets
        self._size = size
        self._moved = moved
        self._capacity = len(buckets) - moved
        self.version = version
        self.released = False

    def __len__(self) -> int:
        return self._size

    def get(self, key: K) -> S | None:
        """Return the state of a key, None if absent. Raises RuntimeError after the release."""
        self._require_open()
        code = hash(key)
        entry = self._buckets[self._place(code)]
        while entry is not None:
            if entry.hash == code and entry.key == key:
                return entry.state
            entry = entry.next
        return None

    def _place(self, code: int) -> int:
        capacity, moved = self._capacity, self._moved
        index = code & (capacity - 1)
        if index >= moved:
            return index - moved
        index = code & (2 * capacity - 1)
        return index if index >= capacity else index + capacity - moved

    def __iter__(self) -> Iterator[tuple[K, S]]:
        """Yield (key, state) of every entry. Raises RuntimeError after the release."""
        self._require_open()
        for entry in self._buckets:
            while entry is not None:
                yield entry.key, entry.state
                self._require_open()
                entry = entry.next

    def _require_open(self) -> None:
        if self.released:
            raise RuntimeError(f"snapshot {self.version} was released; read it before releasing it")

    def release(self) -> None:
        """Let the map forget the snapshot, and drop the buckets. Safe to call again."""
        self._release(self.version)
        self.released = True
        # Delete in pieces, because no other thread runs while Python frees a list.
        while self._buckets:
            del self._buckets[-BUCKETS_AT_ONCE:]
