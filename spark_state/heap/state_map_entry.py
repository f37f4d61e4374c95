"""An entry of a copy-on-write map. The map and its snapshots share entries."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
N = TypeVar("N")
S = TypeVar("S")


class StateMapEntry(Generic[K, N, S]):
    """An entry, identified by (key, namespace).

    `entry_version` and `state_version` are the versions of the map at the last change of the entry
    and of the state. The two versions can differ: a copy of an entry can be private to the map
    while a snapshot still shares the state.
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
