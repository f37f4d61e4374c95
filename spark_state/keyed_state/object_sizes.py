"""About how many bytes of memory Python objects take: estimates at a cost that does not grow.

What Python says of objects counts, some levels deep, and collections by a few of their members.
What all values share, such as small integers, counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from sys import getsizeof
from typing import Any, TypeVar

V = TypeVar("V")

_ELEMENTS = 8
_LEVELS = 4
_ALIGNMENT = 16
_SMALL_INTEGERS = range(-5, 257)


def bytes_of(value: Any, levels: int = _LEVELS) -> int:
    """What an object takes with the objects that it holds; collections by their first members."""
    if value is None or _is_shared(value):
        return 0
    own = aligned(getsizeof(value))
    if isinstance(value, dict):
        members: list[Any] = [m for item in islice(value.items(), _ELEMENTS) for m in item]
        number = 2 * len(value)
    elif isinstance(value, tuple | list | set | frozenset):
        members = [*islice(value, _ELEMENTS)]
        number = len(value)
    else:
        return own
    if not members or not levels:
        return own
    return own + sum(bytes_of(member, levels - 1) for member in members) * number // len(members)


def _is_shared(value: Any) -> bool:
    """Whether there is one object of this value for the whole process."""
    kind = type(value)
    if kind is int:
        return value in _SMALL_INTEGERS
    return kind is bool or (kind in (str, tuple) and not value)


def bytes_of_entries(entries: dict[Any, V], measure: Callable[[V], int]) -> int:
    """What a dictionary takes, by its first and its last entries. `measure`: what a value takes."""
    if not entries:
        return 0
    sample = [*islice(entries.items(), _ELEMENTS), *islice(reversed(entries.items()), _ELEMENTS)]
    each = sum(bytes_of(key) + measure(value) for key, value in sample) / len(sample)
    return getsizeof(entries) + round(each * len(entries))


def aligned(size: int) -> int:
    """What an object of this size takes of the memory."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT
