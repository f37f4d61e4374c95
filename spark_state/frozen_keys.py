"""Keys of maps, as given by callers and as kept: a kept key is frozen, so hashable and comparable.

In a frozen key lists are tuples, every NaN is the one object `math.nan`, and -0.0 is 0.0, at any
depth. So, as with grouping keys, all NaNs are the same key, and both zeros are the same key. A
plain dict would take every NaN for a new key: a map with repeated puts would grow without bound.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from itertools import chain
from types import NoneType
from typing import Any

import pyarrow as pa

from spark_state.serializers import StructSerializer

FrozenKey = tuple[Any, ...]


class FrozenKeys:
    """Keys of one map. `serializer` checks the keys and converts keys to the canonical form."""

    def __init__(self, serializer: StructSerializer) -> None:
        self._serializer = serializer
        self._frozen_as_it_is = serializer.immutable and not _holds_floats(serializer.struct_type)

    def freeze(self, given: Any) -> FrozenKey:
        """Return the frozen key of a caller's key. Raises StateValueError."""
        key = self._serializer.to_state(given)
        return key if self._frozen_as_it_is else frozen(key)

    def freeze_all(self, keys: Iterable[tuple[Any, ...]]) -> Iterable[FrozenKey]:
        """Freeze keys that are already in the canonical form, such as keys read from files. None
        stays None."""
        return keys if self._frozen_as_it_is else map(frozen, keys)

    def thaw(self, key: FrozenKey) -> tuple[Any, ...]:
        """Return a key in the callers' form, with lists and rows."""
        return key if self._frozen_as_it_is else self._serializer.to_state(key)


def frozen(value: Any) -> Any:
    """Freeze a value of a key. A struct, which is a dict in Arrow's `to_pylist`, becomes a
    tuple."""
    if isinstance(value, float):
        return math.nan if value != value else value + 0.0
    if isinstance(value, dict):
        return tuple(map(frozen, value.values()))
    return tuple(map(frozen, value)) if isinstance(value, tuple | list) else value


def in_order(keys: Collection[Any]) -> list[Any]:
    """Sort frozen keys of one type field by field: null first, NaN last, text and bytes by bytes,
    numbers by value."""
    types = set(map(type, keys))
    if types == {tuple}:
        types = set(map(type, chain.from_iterable(keys)))
    # Python's own order is the same, except for null, NaN and tuples, which may hold both.
    if types.isdisjoint((NoneType, float, tuple)):
        return sorted(keys)
    return sorted(keys, key=_rank)


def _rank(key: Any) -> Any:
    if key is None:
        return (0,)
    if isinstance(key, tuple):
        return (1, tuple(map(_rank, key)))
    return (2,) if key is math.nan else (1, key)


def _holds_floats(value_type: Any) -> bool:
    if pa.types.is_struct(value_type):
        return any(_holds_floats(field.type) for field in value_type)
    return bool(pa.types.is_floating(value_type))
