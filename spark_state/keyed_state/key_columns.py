"""Keys between Arrow columns and Python tuples.

A key is the tuple of its grouping columns' values, in the form that Arrow's `to_pylist` gives
(timestamps aware), with structs and lists as tuples. Every NaN becomes the one object `math.nan`,
and -0.0 becomes 0.0, so that keys that Spark groups together are equal here too.
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

# The type stubs of pyarrow.compute reject arguments that its functions take, such as any array.
pc: Any = pyarrow.compute


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The grouping columns: names, Arrow types and Spark's JSON names of the types."""

    names: tuple[str, ...]
    arrow_types: tuple[pa.DataType, ...]
    type_names: tuple[str, ...]

    def to_keys(self, columns: Sequence[pa.Array[Any]], length: int) -> list[tuple[Any, ...]]:
        """`length` keys from one Arrow array a column."""
        if not columns:
            return [()] * length
        return list(zip(*(_values(column) for column in columns), strict=True))

    def shown(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """A key as processors see it: with structs as dicts and arrays as lists, as in Spark."""
        if not self.has_structs:
            return key
        return tuple(map(_shown, key, self.arrow_types))

    def all_shown(self, keys: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Keys as processors see them; the same list if they are kept as they are shown."""
        return [*map(self.shown, keys)] if self.has_structs else keys

    @property
    def has_structs(self) -> bool:
        """Whether a key is shown otherwise than it is kept."""
        return any(map(pa.types.is_nested, self.arrow_types))

    def to_arrow(self, keys: Sequence[tuple[Any, ...]]) -> list[pa.Array[Any]]:
        """One Arrow array a column from keys."""
        shown = map(self.shown, keys) if self.has_structs else keys
        columns = zip(*shown, strict=True) if keys else ([] for _ in self.names)
        return [
            pa.array(column, arrow_type)
            for column, arrow_type in zip(columns, self.arrow_types, strict=True)
        ]


class StoredKeys(Sequence[tuple[Any, ...]]):
    """`length` keys of a file, in these `columns`. They become tuples when the first is asked for:
    whoever reads the columns needs none."""

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
    """Chunked columns in whose order keys are in order: the fields of structs for the structs,
    behind whether the struct is there, and the places of arrays among those of their column."""
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
    """For each array of a chunked column the place of its value in Spark's order. Arrays are
    compared element by element. A null comes first, and an array before those that begin with it.
    """
    codes = value_codes(column)
    # A value is made a Python one once, however many rows have it.
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
