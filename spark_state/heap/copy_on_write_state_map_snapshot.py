"""A snapshot of one copy-on-write map: its buckets as they were, shared with the living map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from spark_state.heap.copy_on_write_state_map import CopyOnWriteStateMap, StateMapEntry

K = TypeVar("K")
N = TypeVar("N")
S = TypeVar("S")


class CopyOnWriteStateMapSnapshot(Generic[K, N, S]):
    """The entries of a map at the moment of `CopyOnWriteStateMap.snapshot`.

    States are shared with the map: whoever iterates reads them and changes nothing. Iterating may
    happen in another thread than the map's.
    """

    def __init__(
        self,
        owner: CopyOnWriteStateMap[K, N, S],
        version: int,
        buckets: Sequence[StateMapEntry[K, N, S] | None],
        size: int,
    ) -> None:
        self._owner = owner
        self._buckets: Sequence[StateMapEntry[K, N, S] | None] = buckets
        self._size = size
        self.version = version
        self.released = False

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[K, N, S]]:
        """(key, namespace, state) of every entry. Raises RuntimeError after the release."""
        self._require_open()
        for entry in self._buckets:
            while entry is not None:
                yield entry.key, entry.namespace, entry.state
                self._require_open()
                entry = entry.next

    def _require_open(self) -> None:
        if self.released:
            raise RuntimeError(f"snapshot {self.version} was released; iterate before releasing it")

    def release(self) -> None:
        """Let the map stop keeping this version. Raises ValueError when called twice."""
        self._owner.release_snapshot(self.version)
        self.released = True
        self._buckets = ()
