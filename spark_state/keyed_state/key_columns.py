"""Keys between Arrow columns and Python tuples.

A key is the tuple of its grouping columns' values, in the form that Arrow's `to_pylist` gives
(timestamps aware), with structs and lists as tuples. Every NaN becomes the one object `math.nan`,
and -0.0 becomes 0.0, so that keys that Spark groups together are equal here too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_state.frozen_keys import frozen


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

    def to_arrow(self, keys: Sequence[tuple[Any, ...]]) -> list[pa.Array[Any]]:
        """One Arrow array a column from keys."""
        columns = zip(*keys, strict=True) if keys else ([] for _ in self.names)
        return [
            pa.array(column, arrow_type)
            for column, arrow_type in zip(columns, self.arrow_types, strict=True)
        ]


def _values(column: pa.Array[Any]) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if pa.types.is_floating(column.type):
        return [
            value if value is None else math.nan if value != value else value + 0.0
            for value in values
        ]
    return [*map(frozen, values)] if pa.types.is_nested(column.type) else values
