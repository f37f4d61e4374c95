"""Spilled input comes back in parts that fit into memory, for any row size and number of runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.processor.input.epoch_inputs import KEYED_ROWS, EpochInputs
from spark_state.processor.input.key_grouping import InputLayout, sorted_by_key
from spark_state.processor.input.spilled_rows import SpilledInput, SpilledRows

LAYOUT = InputLayout(("key", "number", "bytes"), (0,))
COLUMNS = KeyColumns(("key",), (pa.int64(),), ("bigint",))
PART_BYTES = 1 << 20


def pieces(row_bytes: int, count: int, rows: int) -> Iterator[pa.Table]:
    """Make `count` tables of `rows` rows, with random keys."""
    chance = np.random.default_rng(0)
    for first in range(0, count * rows, rows):
        yield pa.table(
            {
                "key": chance.integers(0, 1_000_000, rows),
                "number": range(first, first + rows),
                "bytes": [b"x" * row_bytes] * rows,
                "key group": pa.array([0] * rows, pa.int32()),
            }
        )


def spilled(folder: Path, tables: Iterator[pa.Table], part_bytes: int) -> SpilledRows:
    rows = SpilledRows(EpochInputs(LAYOUT), None, str(folder), part_bytes)
    for table in tables:
        rows.spill(table)
    return rows


@pytest.mark.parametrize(
    ("row_bytes", "count", "rows"), [(100, 12, 8_000), (20_000, 60, 10), (150_000, 40, 2)]
)
def test_parts_of_large_rows_are_not_much_larger_than_those_of_small_ones(
    tmp_path: Path, row_bytes: int, count: int, rows: int
) -> None:
    numbers: list[int] = []
    largest = 0
    with closing(spilled(tmp_path, pieces(row_bytes, count, rows), PART_BYTES)) as input_rows:
        for part in input_rows.by_name(None)[KEYED_ROWS].by_key(COLUMNS):
            largest = max(largest, part.rows.nbytes)
            numbers += part.rows.column("number").to_pylist()
    whole = pa.concat_tables(pieces(row_bytes, count, rows))
    assert numbers == sorted_by_key(whole, LAYOUT).column("number").to_pylist()
    assert whole.nbytes > 10 * PART_BYTES
    assert largest <= 2 * PART_BYTES


def test_very_many_runs_are_merged_to_longer_ones_first(tmp_path: Path) -> None:
    with closing(spilled(tmp_path, pieces(10, 200, 5), PART_BYTES)) as input_rows:
        keyed = cast(SpilledInput, input_rows.by_name(None)[KEYED_ROWS])
        assert keyed._file is not None
        assert len(keyed._file.tables()) <= 64
        numbers = [
            number
            for part in keyed.by_key(COLUMNS)
            for number in part.rows.column("number").to_pylist()
        ]
    whole = pa.concat_tables(pieces(10, 200, 5))
    assert numbers == sorted_by_key(whole, LAYOUT).column("number").to_pylist()
