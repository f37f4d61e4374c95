"""About how many bytes of memory Python objects take: estimates at a cost that does not grow.

What Python says of objects counts, some levels deep, and collections by a few of their members.
What all values share, such as small integers, counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import islice, pairwise
from random import Random
from sys import getsizeof
from typing import Any, TypeVar

T = TypeVar("T")
V = TypeVar("V")

# How many entries of a collection an estimate looks at that is made all the time.
FEW = 16

_ELEMENTS = 8
_LEVELS = 4
_ALIGNMENT = 16
_SMALL_INTEGERS = range(-5, 257)
# Which entries are looked at is no decision of anything.
_CHANCE = Random(0)


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


def bytes_of_entries(
    entries: dict[Any, V], measure: Callable[[V], int], looked_at: int = FEW
) -> int:
    """What a dictionary takes, by about so many of its entries: by few, the first and the last
    ones, and by more, those that chance chooses. `measure`: what a value takes."""
    if not entries:
        return 0
    items = entries.items()
    if looked_at <= FEW:
        sample = [*islice(items, looked_at // 2), *islice(reversed(items), looked_at // 2)]
    else:
        sample = [*_some(items, looked_at)]
    each = sum(bytes_of(key) + measure(value) for key, value in sample) / len(sample)
    return getsizeof(entries) + round(each * len(entries))


def _some(items: Collection[T], number: int) -> Iterator[T]:
    """So many items, in order; all if there are not more."""
    places = sorted(_CHANCE.sample(range(len(items)), min(number, len(items))))
    rest = iter(items)
    for before, place in pairwise([-1, *places]):
        yield next(islice(rest, place - before - 1, None))


def aligned(size: int) -> int:
    """What an object of this size takes of the memory."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT
