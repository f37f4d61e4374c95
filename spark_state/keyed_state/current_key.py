"""The key that a processor handles now, which the tables of all states of a backend look at."""

from __future__ import annotations

from typing import Any

Key = tuple[Any, ...]


class CurrentKey:
    """The key and its key group. A backend sets them together, once a key, however many states
    there are.

    Two keys are the same only if they are one object: a table that keeps what it found for a key
    asks with `is`, which costs less than to hash it.
    """

    __slots__ = ("key", "key_group")

    def __init__(self, key_group: int) -> None:
        self.key: Key = ()
        self.key_group = key_group
