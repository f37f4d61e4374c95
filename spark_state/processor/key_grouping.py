"""Input rows sorted by key.

Spark delivers the rows of a subtask in any order; a processor sees all rows of a key of an epoch in
one call. Keys are compared by the codes of dictionary-encoded columns, which treats nulls as equal
and costs the same for every type; the sort is stable, so rows of a key keep their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_state.keyed_state.key_columns import KeyColumns

_CODE_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class InputLayout:
    """Where an operator's input holds what.

    `row_names`: names of the columns that make up a row, in order; they come first.
    `key_indexes`: the key columns among them. The key group is the column after the last row name.
    """

    row_names: tuple[str, ...]
    key_indexes: tuple[int, ...]

    @property
    def key_group_index(self) -> int:
        """The column that has the key groups."""
        return len(self.row_names)


@dataclass(frozen=True, slots=True)
class KeyedInput:
    """Rows grouped by key: `counts[i]` rows of `rows` belong to `keys[i]`, in order."""

    rows: pa.Table
    keys: list[tuple[Any, ...]]
    key_groups: list[int]
    counts: list[int]


def group_by_key(table: pa.Table, layout: InputLayout, key_columns: KeyColumns) -> KeyedInput:
    """Sort `table` by key and find where keys begin."""
    if not table.num_rows:
        return KeyedInput(table, [], [], [])
    codes = _key_codes([table.column(index) for index in layout.key_indexes], table.num_rows)
    order = np.argsort(codes, kind="stable")
    in_order = codes[order]
    starts = np.concatenate(([0], np.flatnonzero(in_order[1:] != in_order[:-1]) + 1))
    counts = np.diff(starts, append=len(in_order))
    firsts = table.take(order[starts])
    keys = key_columns.to_keys(
        [firsts.column(index).combine_chunks() for index in layout.key_indexes], len(starts)
    )
    return KeyedInput(
        table.select(range(layout.key_group_index)).take(order),
        keys,
        cast(list[int], firsts.column(layout.key_group_index).to_pylist()),
        counts.tolist(),
    )


def _key_codes(columns: list[Any], length: int) -> npt.NDArray[np.int64]:
    """One integer a row, equal exactly where all key columns are equal."""
    combined = np.zeros(length, dtype=np.int64)
    size = 1
    for column in columns:
        codes, distinct = _column_codes(column)
        if size * distinct >= _CODE_LIMIT:
            distinct_codes, combined = np.unique(combined, return_inverse=True)
            size = len(distinct_codes)
        combined = combined * distinct + codes
        size *= distinct
    return combined


def _column_codes(column: Any) -> tuple[npt.NDArray[np.int64], int]:
    if pa.types.is_floating(column.type):
        column = pc.add(column, pa.scalar(0.0, column.type))
    encoded = column.dictionary_encode(null_encoding="encode").unify_dictionaries()
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])
    return codes.astype(np.int64), max(len(encoded.chunk(0).dictionary), 1)
