"""An entry of a copy-on-write map. The map and its snapshots share entries."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
S = TypeVar("S")


class StateMapEntry(Generic[K, S]):
    """An entry of a key. `entry_version` and `state_version` are the versions of the map at the
    last change of the entry and of the state. The two versions can differ: a copy of an entry can
    be private to the map while a snapshot still shares the state."""

    __slots__ = ("entry_version", "hash", "key", "next", "state", "state_version")

    def __init__(
        self,
        key: K,
        code: int,
        state: S,
        following: StateMapEntry[K, S] | None,
        entry_version: int,
        state_version: int,
    ) -> None:
        self.key = key
        self.hash = code
        self.state = state
        self.next = following
        self.entry_version = entry_version
        self.state_version = state_version


Bucket = StateMapEntry[K, S] | None
