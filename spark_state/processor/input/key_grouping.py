"""Input rows sorted by key.

Spark delivers the rows of a subtask in any order; a processor gets all rows of a key in an epoch in
one call. Keys are in Spark's ascending order: nulls first, NaN last, text by UTF-8 bytes. The sort
is stable, so rows of a key keep their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_state.keyed_state.key_columns import KeyColumns, leaf_columns

_SAMPLED_ROWS = 4_096
_DISTINCT_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class InputLayout:
    """Column positions in an operator's input.

    `row_names`: names of the row's columns, in order; these columns come first. `key_indexes`: the
    key columns among these columns. The column after the last row name has the key group.
    """

    row_names: tuple[str, ...]
    key_indexes: tuple[int, ...]

    @property
    def key_group_index(self) -> int:
        """The position of the column with the key groups."""
        return len(self.row_names)


@dataclass(frozen=True, slots=True)
class KeyedInput:
    """Rows grouped by key, in order: `counts[i]` rows of `rows` belong to `keys[i]`, and
    `key_groups[i]` is the key group of `keys[i]`."""

    rows: pa.Table
    keys: list[tuple[Any, ...]]
    key_groups: list[int]
    counts: list[int]


def group_by_key(table: pa.Table, layout: InputLayout, key_columns: KeyColumns) -> KeyedInput:
    """Sort `table` by key and find the first row of each key."""
    return grouped(sorted_by_key(table, layout), layout, key_columns)


def sorted_by_key(table: pa.Table, layout: InputLayout) -> pa.Table:
    """Return the rows sorted by key."""
    return table.take(key_order(table, layout)) if table.num_rows else table


def grouped(in_order: pa.Table, layout: InputLayout, key_columns: KeyColumns) -> KeyedInput:
    """Return rows that are sorted by key as a KeyedInput."""
    if not in_order.num_rows:
        return KeyedInput(in_order, [], [], [])
    starts = key_starts(in_order, layout)
    # `take` from a column of several chunks copies the whole column, and keys have any length.
    firsts = in_order.take(starts) if len(starts) > 1 else in_order.slice(0, 1)
    keys = key_columns.to_keys(
        [firsts.column(index).combine_chunks() for index in layout.key_indexes], len(starts)
    )
    return KeyedInput(
        in_order.select(range(layout.key_group_index)),
        keys,
        cast(list[int], firsts.column(layout.key_group_index).to_pylist()),
        np.diff(starts, append=in_order.num_rows).tolist(),
    )


def key_order(table: pa.Table, layout: InputLayout) -> Any:
    """Return the indexes that sort the rows by key, nulls first."""
    columns = _key_leaves(table, layout)
    if not columns:
        return np.arange(table.num_rows)
    if len(columns) == 1 and not columns[0].null_count and pa.types.is_integer(columns[0].type):
        return np.argsort(columns[0].to_numpy(), kind="stable")
    if len(columns) == 1 and _is_text_of_few(columns[0]):
        return _order_of_few(columns[0])
    sorted_by: dict[str, Any] = {}
    for number, column in enumerate(columns):
        if column.null_count:
            # Arrow would sort NaN next to the nulls, at either end.
            sorted_by[f"valid {number}"] = column.is_valid()
        sorted_by[f"value {number}"] = _one_zero(column)
    return pc.sort_indices(
        pa.table(sorted_by), sort_keys=[(name, "ascending") for name in sorted_by]
    )


def key_starts(in_order: pa.Table, layout: InputLayout) -> npt.NDArray[np.int64]:
    """Return the index of the first row of each key, in rows that are sorted by key: row 0, and
    each row where a key column changes."""
    begins = np.zeros(in_order.num_rows, dtype=np.bool_)
    begins[0] = True
    for column in _key_leaves(in_order, layout):
        begins[1:] |= _changes(column)
    return np.flatnonzero(begins)


def _key_leaves(table: pa.Table, layout: InputLayout) -> list[Any]:
    return leaf_columns(table.column(index) for index in layout.key_indexes)


def _is_text_of_few(column: Any) -> bool:
    """Return True for a text column without nulls whose values seem to repeat."""
    kind = column.type
    if column.null_count or not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return False
    sample = column.slice(0, _SAMPLED_ROWS)
    return len(pc.unique(sample)) < _DISTINCT_SHARE * len(sample)


def _order_of_few(column: Any) -> npt.NDArray[np.intp]:
    """Return the indexes that sort the rows by a text column with few distinct values. Sorts the
    distinct values first, then the rows by the places of their values in this order."""
    coded = column.combine_chunks().dictionary_encode()
    in_order = pc.sort_indices(coded.dictionary).to_numpy()
    # numpy sorts numbers of 16 bits in linear time.
    place_type = np.uint16 if len(in_order) <= 1 << 16 else np.uint32
    places = np.empty(len(in_order), place_type)
    places[in_order] = np.arange(len(in_order), dtype=place_type)
    return np.argsort(places[coded.indices.to_numpy()], kind="stable")


def _changes(column: Any) -> npt.NDArray[np.bool_]:
    """Return, for each row from the second on, whether its value differs from the value of the row
    before."""
    before, after = column.slice(0, len(column) - 1), column.slice(1)
    differ = pc.not_equal(_one_zero(before), _one_zero(after)).fill_null(False)
    if pa.types.is_floating(column.type):
        differ = pc.and_not(differ, pc.and_(_is_nan(before), _is_nan(after)))
    if column.null_count:
        differ = pc.or_(differ, pc.xor(before.is_null(), after.is_null()))
    changes: npt.NDArray[np.bool_] = differ.to_numpy()
    return changes


def _one_zero(column: Any) -> Any:
    """Replace -0.0 by 0.0, because both are the same key."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.add(column, pa.scalar(0.0, column.type))


def _is_nan(column: Any) -> Any:
    return pc.is_nan(column).fill_null(False)
