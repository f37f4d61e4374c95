"""The key that a processor handles now. The tables of all states of a backend read the key here."""

from __future__ import annotations

from typing import Any

Key = tuple[Any, ...]


class CurrentKey:
    """The current key and the key group. A backend sets both once per key, for any number of
    states.

    A table that caches the result for a key compares keys with `is`, because `is` costs less than a
    hash. So an equal key in another object counts as a new key.
    """

    __slots__ = ("key", "key_group")

    def __init__(self, key_group: int) -> None:
        self.key: Key = ()
        self.key_group = key_group
