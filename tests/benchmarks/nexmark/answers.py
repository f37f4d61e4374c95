"""Compares the answers of an engine with the answers of a batch. Imports no engine.

An engine writes its answers to parquet files, with a column `batch` that grows from row to row or
from batch to batch. Times may be timestamps or milliseconds since 1970.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

BOUNDS = ("end", "start")
"""Columns of windows, in the order in which they are looked for."""

Row = tuple[Any, ...]


class WrongAnswersError(Exception):
    """The answers of an engine differ from the answers of a batch."""


def compare(expected: pa.Table, answered: pa.Table, keys: Sequence[str], has_open: bool) -> int:
    """Compare answers with the expected ones. Returns the number of compared rows.

    `keys`: the columns that identify a row of the answer, of which the last row counts; no columns
    if each row counts. `has_open`: windows that are newer than all answered windows may be missing,
    because they are still open. Raises WrongAnswersError.
    """
    names = expected.column_names
    answers = Counter(_rows(_last_rows(answered, keys), names))
    if not answers:
        raise WrongAnswersError("there are no rows")
    rows = _rows(expected, names)
    bound = next((names.index(name) for name in BOUNDS if name in names), None)
    if has_open and bound is not None:
        newest = max(row[bound] for row in answers)
        rows = [row for row in rows if row[bound] <= newest]
    wrong, missing = answers - Counter(rows), Counter(rows) - answers
    if wrong or missing:
        examples = [next(iter(part), None) for part in (wrong, missing)]
        raise WrongAnswersError(
            f"{wrong.total()} of {answers.total()} rows are wrong, such as {examples[0]}; "
            f"{missing.total()} are missing, such as {examples[1]}"
        )
    return answers.total()


def _last_rows(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each key."""
    if not keys:
        return table
    table = table.sort_by("batch")
    last = {key: place for place, key in enumerate(_rows(table, keys))}
    return table.take(pa.array(last.values(), pa.int64()))


def _rows(table: pa.Table, names: Sequence[str]) -> list[Row]:
    return list(zip(*(_milliseconds(table[name]).to_pylist() for name in names), strict=True))


def _milliseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column with milliseconds since 1970 in place of timestamps."""
    if not pa.types.is_timestamp(column.type):
        return column
    return pc.cast(pc.cast(column, pa.timestamp("ms", column.type.tz)), pa.int64())
