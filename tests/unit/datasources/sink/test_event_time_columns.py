"""A sink finds the event times that Spark marks in a schema, and computes the rows' watermark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType, TimestampNTZType, TimestampType

from datasources.sink.event_time_columns import EventTimeColumn, event_time_columns, watermark_ms

MARK = {"spark.watermarkDelayMs": 5000}
START = datetime(2026, 1, 1, tzinfo=UTC)
START_MS = int(START.timestamp() * 1000)


def rows(*seconds: int | None) -> pa.Table:
    moments = [None if second is None else START + timedelta(seconds=second) for second in seconds]
    return pa.table({"moment": pa.array(moments, pa.timestamp("us", "UTC"))})


def test_the_marked_timestamps_are_found() -> None:
    schema = StructType(
        [
            StructField("id", LongType()),
            StructField("moment", TimestampType(), metadata=MARK),
            StructField("other", TimestampType()),
            StructField("window", StructType([]), metadata=MARK),
            StructField("local", TimestampNTZType(), metadata=MARK),
        ]
    )
    assert event_time_columns(schema) == (EventTimeColumn("moment", 5000),)


def test_rows_are_as_far_as_the_greatest_less_the_delay() -> None:
    columns = [EventTimeColumn("moment", 5000)]
    assert watermark_ms(rows(10, 40, None, 20), columns) == START_MS + 35_000
    assert watermark_ms(rows(None), columns) is None
    assert watermark_ms(rows(), columns) is None
    assert watermark_ms(rows(10), []) is None


def test_of_several_event_times_the_least_counts() -> None:
    both = rows(10, 40).append_column("end", rows(30, 20)["moment"])
    columns = [EventTimeColumn("moment", 0), EventTimeColumn("end", 1000)]
    assert watermark_ms(both, columns) == START_MS + 29_000


def test_times_before_1970_and_fractions_of_milliseconds_round_down() -> None:
    moment = datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC)
    table = pa.table({"moment": pa.array([moment], pa.timestamp("us", "UTC"))})
    assert watermark_ms(table, [EventTimeColumn("moment", 0)]) == -1
