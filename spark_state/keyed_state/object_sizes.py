"""Estimates of the bytes that Python objects take. The cost of an estimate does not grow with the
number of objects.

An estimate adds the sizes that Python reports for nested objects, down to a few levels. The size of
a collection is extrapolated from a few members. Small integers, True, False and empty texts count
as 0, because Python has only one object for each of these values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import islice, pairwise
from random import Random
from sys import getsizeof
from typing import Any, TypeVar

T = TypeVar("T")
V = TypeVar("V")

# Number of entries that a frequent estimate looks at in a collection.
FEW = 16

_ELEMENTS = 8
_LEVELS = 4
_ALIGNMENT = 16
_SMALL_INTEGERS = range(-5, 257)
# No decision depends on the choice of entries.
_CHANCE = Random(0)


def bytes_of(value: Any, levels: int = _LEVELS) -> int:
    """Estimate the bytes of an object and all nested objects. The size of a collection is
    extrapolated from the first members."""
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
    """True if the process has only one object of this value."""
    kind = type(value)
    if kind is int:
        return value in _SMALL_INTEGERS
    return kind is bool or (kind in (str, tuple) and not value)


def bytes_of_entries(
    entries: dict[Any, V], measure: Callable[[V], int], looked_at: int = FEW
) -> int:
    """Estimate the bytes of a dictionary from about `looked_at` entries. `measure` returns the
    bytes of a value. A sample up to FEW has the first and last entries; a larger sample is
    random."""
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
    """Yield `number` random items, in order; all items if there are fewer."""
    places = sorted(_CHANCE.sample(range(len(items)), min(number, len(items))))
    rest = iter(items)
    for before, place in pairwise([-1, *places]):
        yield next(islice(rest, place - before - 1, None))


def aligned(size: int) -> int:
    """Return the bytes of memory that an object of this size takes."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT
