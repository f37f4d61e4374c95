"""The key that a processor handles now. The tables of all states of a backend read the key here."""

from __future__ import annotations

from typing import Any

Key = tuple[Any, ...]


class CurrentKey:
    """The current key and its key group. A backend sets both once per key, for all states together.

    A table that caches the value of the current key compares keys with `is`, because `is` costs
    less than a hash. So for the cache, an equal key in another object is a new key.
    """

    __slots__ = ("key", "key_group")

    def __init__(self, key_group: int) -> None:
        self.key: Key = ()
        self.key_group = key_group
