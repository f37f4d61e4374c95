"""Conversion of Arrow columns to rows for a processor.

A row is a `pyspark.sql.Row` with the values of Arrow's `as_py`, as in Spark's own row API. Rows of
one input share a subclass of Row. The subclass has the field names, so making a row costs no more
than making a tuple.
"""

from __future__ import annotations

import datetime
import keyword
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, repeat
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.types import _create_row

from spark_state.codecs.state_codecs import state_forms

_ROWS_AT_ONCE = 16_384
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@lru_cache(maxsize=256)
def row_type(names: tuple[str, ...]) -> type[Row]:
    """Return a subclass of Row for the field names. The rows compare and pickle as plain Rows."""
    members: dict[str, Any] = {"__slots__": (), "__fields__": list(names)}
    for index, name in reversed(list(enumerate(names))):
        if name.isidentifier() and not keyword.iskeyword(name) and not hasattr(Row, name):
            members[name] = property(itemgetter(index))
    return type("Row", (Row,), members)


def _make_row(names: tuple[str, ...], values: tuple[Any, ...]) -> Row:
    row: Row = _create_row(list(names), values)
    return row


STATE_FORMS = state_forms(_make_row)


def rows_of(table: pa.Table, row_class: type[Row]) -> Iterator[Row]:
    """Return the rows of a table in order, converted slice by slice."""
    batches = table.to_batches(max_chunksize=_ROWS_AT_ONCE)
    return chain.from_iterable(_rows_of_batch(batch, row_class) for batch in batches)


def _rows_of_batch(batch: pa.RecordBatch, row_class: type[Row]) -> Iterator[Row]:
    columns = map(column_values, batch.columns)
    return map(tuple.__new__, repeat(row_class), zip(*columns, strict=True))


def column_values(column: pa.Array[Any]) -> list[Any]:
    """Return the values of `column.to_pylist()`, faster for timestamps."""
    if pa.types.is_timestamp(column.type) and column.type.unit == "us":
        return _timestamps(column)
    values: list[Any] = column.to_pylist()
    return values


def _timestamps(column: pa.Array[Any]) -> list[Any]:
    if column.type.tz is None:
        naive: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return naive
    zone = pa.lib.string_to_tzinfo(column.type.tz)
    delta = datetime.timedelta
    return [
        None if micros is None else (_EPOCH + delta(0, 0, micros)).astimezone(zone)
        for micros in column.cast(pa.int64()).to_pylist()
    ]
