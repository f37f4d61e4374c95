"""An entry of a copy-on-write map. The map and its snapshots share entries."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
S = TypeVar("S")


class StateMapEntry(Generic[K, S]):
    """The entry of a key. `entry_version`: version of the map when the entry was made, perhaps as a
    copy. `state_version`: version of the map when the state was set. A copy of an entry gets a new
    `entry_version`, but keeps the state and `state_version`: only the map has the copy, and a
    snapshot still shares the state."""

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
