"""Keys of maps as callers give them, and as they are kept: hashable, and equal where they are one.

A frozen key is the key with lists as tuples, every NaN as the one object `math.nan`, and -0.0 as
0.0, at any depth. As with grouping keys, those are one key each; a plain dict would take every NaN
for another one, so that a map that is put into again and again grows without bound.
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
    """The keys of one map, which `serializer` checks and brings into their canonical form."""

    def __init__(self, serializer: StructSerializer) -> None:
        self._serializer = serializer
        self._frozen_as_it_is = serializer.immutable and not _holds_floats(serializer.struct_type)

    def freeze(self, given: Any) -> FrozenKey:
        """The frozen key that a caller means. Raises StateValueError."""
        key = self._serializer.to_state(given)
        return key if self._frozen_as_it_is else frozen(key)

    def freeze_all(self, keys: Iterable[tuple[Any, ...]]) -> Iterable[FrozenKey]:
        """Keys that were read, frozen."""
        return keys if self._frozen_as_it_is else map(frozen, keys)

    def thaw(self, key: FrozenKey) -> tuple[Any, ...]:
        """A key as callers see it, with lists and rows in it again."""
        return key if self._frozen_as_it_is else self._serializer.to_state(key)


def frozen(value: Any) -> Any:
    """A value of a key in its frozen form; a struct, which Arrow gives as a dict, is a tuple."""
    if isinstance(value, float):
        return math.nan if value != value else value + 0.0
    if isinstance(value, dict):
        return tuple(map(frozen, value.values()))
    return tuple(map(frozen, value)) if isinstance(value, tuple | list) else value


def in_order(keys: Collection[Any]) -> list[Any]:
    """Frozen keys of one type in their order: field by field, null first, NaN last; text and bytes
    by their bytes. Numbers are in their own order."""
    types = set(map(type, keys))
    if types == {tuple}:
        types = set(map(type, chain.from_iterable(keys)))
    # Python's own order is this one, but for null, for NaN, and for what may hold them.
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
