"""Columns with event times in the input and output of an operator.

Spark marks the column of a `withWatermark` call, and windows of the column, in the column's
metadata. In time mode "EventTime" the marked column of the input decides if a row is late.

Spark's stateful operators downstream find the column of event times by the same mark, and get the
watermark from the `withWatermark` upstream. So to give these operators an event time, this module
marks a column of the output.

For a mistake that Spark's own operator refuses, too, the error has Spark's error condition.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, TimestampType

from spark_state.errors import ConfigurationError
from spark_state.processor.condition_errors import EventTimeColumnError
from spark_state.processor.input.event_times import EventTimes
from spark_state.spark.input.upstream_watermarks import (
    DELAY_KEY,
    UpstreamWatermarks,
    watermark_delays_ms,
)

_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


def event_times(
    upstream: UpstreamWatermarks, row_fields: Sequence[StructField], mode: str
) -> EventTimes:
    """The positions of the event times in the rows of an operator. `row_fields`: the columns of a
    row; the key group comes after these columns. In time mode "EventTime", raises
    EventTimeColumnError if several columns are event times, and ConfigurationError if a stream has
    no watermark."""
    spark, is_streaming = upstream.df.sparkSession, upstream.df.isStreaming
    marked = [index for index, field in enumerate(row_fields) if DELAY_KEY in field.metadata]
    is_event_time = mode == "EventTime" and is_streaming
    if is_event_time and len(marked) > 1:
        names = ", ".join(row_fields[index].name for index in marked)
        raise EventTimeColumnError(
            "MULTIPLE_EVENT_TIME_COLUMNS",
            "42K09",
            "More than one event time columns are available. Please ensure there is at most one "
            f"event time column per stream. event time columns: ({names})",
            {"eventTimeCols": f"({names})"},
        )
    if is_event_time and not (marked or upstream.carried):
        raise ConfigurationError(
            'time mode "EventTime" needs a watermark, and no rows of the grouped DataFrame have '
            "one: call withWatermark(column, delay) before groupBy, and keep the column"
        )
    return EventTimes(
        index=marked[0] if marked else None,
        carried_index=len(row_fields) + 1 if upstream.carried else None,
        delays_ms=upstream.delays_ms,
        policy="max" if str(spark.conf.get(_POLICY)).lower() == "max" else "min",
        drops_late=is_event_time,
    )


def with_event_time(output: DataFrame, name: str, source: DataFrame) -> DataFrame:
    """`output`, with the column of this name marked as event time; unchanged if the name is empty.
    `source`: the input of the operator. Raises Spark's own error if the column is missing, and
    EventTimeColumnError if the column is not a timestamp, or if `source` has no watermark."""
    if not name:
        return output
    (field,) = output.select(name).schema.fields
    delays_ms = watermark_delays_ms(source)
    if not delays_ms:
        raise EventTimeColumnError(
            "CANNOT_ASSIGN_EVENT_TIME_COLUMN_WITHOUT_WATERMARK",
            "42611",
            "Watermark needs to be defined to reassign event time column. Failed to find watermark "
            "definition in the streaming query.",
            {},
        )
    if not isinstance(field.dataType, TimestampType):
        name, kind = f'"{field.name}"', f'"{field.dataType.simpleString().upper()}"'
        raise EventTimeColumnError(
            "EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE",
            "42K09",
            f'The event time {name} has the invalid type {kind}, but expected "TIMESTAMP".',
            {"eventName": name, "eventType": kind},
        )
    return output.withMetadata(field.name, {DELAY_KEY: max(delays_ms)})
