"""Conversion of keys between Arrow columns and Python tuples.

A key is the tuple of the values of the grouping columns, in the form of Arrow's `to_pylist`
(timestamps with a time zone), but with structs and lists as tuples. Every NaN becomes the object
`math.nan`, and -0.0 becomes 0.0. So keys that Spark groups together are equal here, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute

from checkpoint_store.states.key_codes import value_codes
from spark_state.frozen_keys import frozen, in_order

# The type stubs of pyarrow.compute reject valid arguments, such as arrays of any type.
pc: Any = pyarrow.compute


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The grouping columns: names, Arrow types and Spark's JSON names of the types."""

    names: tuple[str, ...]
    arrow_types: tuple[pa.DataType, ...]
    type_names: tuple[str, ...]

    def to_keys(self, columns: Sequence[pa.Array[Any]], length: int) -> list[tuple[Any, ...]]:
        """Convert one Arrow array per key column to `length` keys."""
        if not columns:
            return [()] * length
        return list(zip(*(_values(column) for column in columns), strict=True))

    def all_shown(self, keys: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
        """Return keys in the form that processors get, as in Spark: structs as dicts, arrays as
        lists. Returns `keys` itself if the key columns have no structs and arrays."""
        if not any(map(pa.types.is_nested, self.arrow_types)):
            return keys
        return [tuple(map(_shown, key, self.arrow_types)) for key in keys]

    def to_arrow(self, keys: Sequence[tuple[Any, ...]]) -> list[pa.Array[Any]]:
        """Convert keys to one Arrow array per key column."""
        columns = zip(*self.all_shown(keys), strict=True) if keys else ([] for _ in self.names)
        return [
            pa.array(column, arrow_type)
            for column, arrow_type in zip(columns, self.arrow_types, strict=True)
        ]


class StoredKeys(Sequence[tuple[Any, ...]]):
    """Keys of a file: `length` keys in `columns`. The first access to a key makes tuples of all
    keys, so a caller who reads only the columns saves the conversion."""

    def __init__(
        self, key_columns: KeyColumns, columns: Sequence[pa.Array[Any]], length: int
    ) -> None:
        self.columns = columns
        self.key_columns = key_columns
        self._length = length

    @cached_property
    def _keys(self) -> list[tuple[Any, ...]]:
        return self.key_columns.to_keys(self.columns, self._length)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._keys)

    @overload
    def __getitem__(self, index: int) -> tuple[Any, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[Any, ...]]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._keys[index]


def _shown(value: Any, arrow_type: Any) -> Any:
    if value is not None and pa.types.is_struct(arrow_type):
        return {f.name: _shown(v, f.type) for f, v in zip(arrow_type, value, strict=True)}
    if value is not None and pa.types.is_list(arrow_type):
        return [_shown(element, arrow_type.value_type) for element in value]
    return value


def leaf_columns(columns: Iterable[Any]) -> list[Any]:
    """Replace chunked key columns by columns that Arrow can sort. Rows sorted by the new columns
    are in the order of the keys.

    A column of structs becomes the columns of the fields. If the column has null structs, a boolean
    column (False: the struct is null) is added before the columns of the fields. A column of arrays
    becomes a column of numbers: the place of each array among all arrays of the column.
    """
    leaves = []
    for column in columns:
        if pa.types.is_list(column.type):
            leaves.append(_places(column))
            continue
        if not pa.types.is_struct(column.type):
            leaves.append(column)
            continue
        if column.null_count:
            leaves.append(column.is_valid())
        fields = [pc.struct_field(column, [index]) for index in range(column.type.num_fields)]
        leaves += leaf_columns(fields)
    return leaves


def _places(column: Any) -> Any:
    """Return for each array of a chunked column its place in Spark's order: null first, then arrays
    compared element by element; an array comes before longer arrays with the same beginning."""
    codes = value_codes(column)
    # Each distinct value is converted to Python once, however many rows have the value.
    _, firsts, coded_as = np.unique(codes, return_index=True, return_inverse=True)
    values = [*map(frozen, column.take(pa.array(firsts)).to_pylist())]
    arrays = in_order({value for value in values if value is not None})
    place_of = {value: place for place, value in enumerate([None, *arrays])}
    places = np.array([place_of[value] for value in values], np.int64)
    return pa.chunked_array([pa.array(places[coded_as])])


def _values(column: pa.Array[Any]) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if pa.types.is_floating(column.type):
        return [
            value if value is None else math.nan if value != value else value + 0.0
            for value in values
        ]
    return [*map(frozen, values)] if pa.types.is_nested(column.type) else values
