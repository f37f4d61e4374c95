"""Time modes, and the event times that the driver finds in the rows of an operator.

Spark marks the column of a `withWatermark` call, and windows of the column, in the column's
metadata. In time mode "EventTime" such a column, if there is one, decides if a row is late.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField

from spark_state.checkpointing.watermarks import Policy
from spark_state.errors import ConfigurationError
from spark_state.processor.input.event_times import EventTimes
from spark_state.spark.input.upstream_watermarks import DELAY_KEY, UpstreamWatermarks
from spark_state.spark.session.spark_conditions import analysis_error

_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


def event_times(
    upstream: UpstreamWatermarks, row_fields: Sequence[StructField], mode: str
) -> EventTimes:
    """The positions of the event times in the rows of an operator. `row_fields`: the columns of a
    row; the key group comes after these columns. In time mode "EventTime", raises Spark's own error
    if several columns are event times, and ConfigurationError if a stream has no watermark."""
    spark, is_streaming = upstream.df.sparkSession, upstream.df.isStreaming
    marked = [index for index, field in enumerate(row_fields) if DELAY_KEY in field.metadata]
    is_event_time = mode == "EventTime" and is_streaming
    if is_event_time and len(marked) > 1:
        names = ", ".join(row_fields[index].name for index in marked)
        raise analysis_error(spark, "MULTIPLE_EVENT_TIME_COLUMNS", eventTimeCols=f"({names})")
    if is_event_time and not (marked or upstream.carried):
        raise ConfigurationError(
            'time mode "EventTime" needs a watermark, and no rows of the grouped DataFrame have '
            "one: call withWatermark(column, delay) before groupBy, and keep the column"
        )
    return EventTimes(
        index=marked[0] if marked else None,
        carried_index=len(row_fields) + 1 if upstream.carried else None,
        delays_ms=upstream.delays_ms,
        policy=_policy(spark),
        drops_late=is_event_time,
    )


def _policy(spark: SparkSession) -> Policy:
    return "max" if str(spark.conf.get(_POLICY)).lower() == "max" else "min"
