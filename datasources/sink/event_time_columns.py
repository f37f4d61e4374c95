"""Finds event-time columns in a schema, and computes the watermark of rows.

Spark marks the column of `withWatermark` in the schema, with the greatest delay of its rows. The
mark stays on columns selected from the marked column, and on the ends of windows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute
from pyspark.sql.types import StructType, TimestampType

_DELAY_MS = "spark.watermarkDelayMs"
_US_PER_MS = 1000
# pyarrow's type stubs reject arguments that its compute functions accept, such as chunked arrays.
pc: Any = pyarrow.compute


@dataclass(frozen=True, slots=True)
class EventTimeColumn:
    """A column of timestamps, and the greatest delay of its rows in milliseconds."""

    name: str
    delay_ms: int


def event_time_columns(schema: StructType) -> tuple[EventTimeColumn, ...]:
    """The event-time columns among the top-level columns of `schema`."""
    return tuple(
        EventTimeColumn(field.name, int(field.metadata[_DELAY_MS]))
        for field in schema
        if _DELAY_MS in field.metadata and isinstance(field.dataType, TimestampType)
    )


def watermark_ms(rows: pa.Table, columns: Iterable[EventTimeColumn]) -> int | None:
    """The watermark of the rows in ms since 1970: the greatest event time minus the delay. With
    several columns, the least of their watermarks. None if the rows have no event time."""
    watermarks = []
    for column in columns:
        greatest = pc.max(rows[column.name].cast(pa.timestamp("us", "UTC")).cast(pa.int64()))
        if greatest.is_valid:
            watermarks.append(greatest.as_py() // _US_PER_MS - column.delay_ms)
    return min(watermarks, default=None)
