"""An entry of a copy-on-write map, which the map and its snapshots share."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
N = TypeVar("N")
S = TypeVar("S")


class StateMapEntry(Generic[K, N, S]):
    """One entry. Identity: (key, namespace). Versions are those of the map at the last change.

    A copy of an entry is private to the map while its state is still shared with a snapshot, so the
    two have versions of their own.
    """

    __slots__ = ("entry_version", "hash", "key", "namespace", "next", "state", "state_version")

    def __init__(
        self,
        identity: tuple[K, N, int],
        state: S,
        following: StateMapEntry[K, N, S] | None,
        entry_version: int,
        state_version: int,
    ) -> None:
        self.key, self.namespace, self.hash = identity
        self.state = state
        self.next = following
        self.entry_version = entry_version
        self.state_version = state_version


Bucket = StateMapEntry[K, N, S] | None
