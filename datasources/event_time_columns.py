"""Which columns of rows are event times, and how far rows are by them.

Spark marks the column of `withWatermark` in the schema, with the delay that its rows may have; the
mark stays on what is selected from it, and on the ends of windows.
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
# The stubs of the compute functions do not take what the functions take, such as chunked arrays.
pc: Any = pyarrow.compute


@dataclass(frozen=True, slots=True)
class EventTimeColumn:
    """A column of timestamps, and how late its rows may be."""

    name: str
    delay_ms: int


def event_time_columns(schema: StructType) -> tuple[EventTimeColumn, ...]:
    """The columns at the top level that are marked."""
    return tuple(
        EventTimeColumn(field.name, int(field.metadata[_DELAY_MS]))
        for field in schema
        if _DELAY_MS in field.metadata and isinstance(field.dataType, TimestampType)
    )


def watermark_ms(rows: pa.Table, columns: Iterable[EventTimeColumn]) -> int | None:
    """The greatest event time less the delay, in ms since 1970; of several columns the least.

    None if there is no event time.
    """
    watermarks = []
    for column in columns:
        greatest = pc.max(rows[column.name].cast(pa.timestamp("us", "UTC")).cast(pa.int64()))
        if greatest.is_valid:
            watermarks.append(greatest.as_py() // _US_PER_MS - column.delay_ms)
    return min(watermarks, default=None)
