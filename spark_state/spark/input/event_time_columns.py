"""Columns with event times in the input and output of an operator.

Spark marks the column of a `withWatermark` call, and windows of the column, in the column's
metadata. In time mode "EventTime" such a column, if there is one, decides if a row is late. Spark's
stateful operators downstream find the column of event times by the same mark, and take the
watermark at the place of `withWatermark`. So a mark on an output column is enough.

Calls that Spark's own operator would refuse, too, raise Spark's own errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.errors.exceptions.captured import convert_exception
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, TimestampType

from spark_state.errors import ConfigurationError
from spark_state.processor.input.event_times import EventTimes
from spark_state.spark.input.upstream_watermarks import (
    DELAY_KEY,
    UpstreamWatermarks,
    watermark_delays_ms,
)
from spark_state.spark.session.connect_sessions import is_connect

_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
# The SQL state of each condition in Spark; a client of Spark Connect cannot look up the state.
_SQL_STATES = {
    "CANNOT_ASSIGN_EVENT_TIME_COLUMN_WITHOUT_WATERMARK": "42611",
    "EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE": "42K09",
    "MULTIPLE_EVENT_TIME_COLUMNS": "42K09",
}


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
        raise _analysis_error(spark, "MULTIPLE_EVENT_TIME_COLUMNS", eventTimeCols=f"({names})")
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
    `source`: the input of the operator. Raises Spark's own errors if the column is missing or is
    not a timestamp, or if `source` has no watermark."""
    if not name:
        return output
    spark = output.sparkSession
    (field,) = output.select(name).schema.fields
    delays_ms = watermark_delays_ms(source)
    if not delays_ms:
        raise _analysis_error(spark, "CANNOT_ASSIGN_EVENT_TIME_COLUMN_WITHOUT_WATERMARK")
    if not isinstance(field.dataType, TimestampType):
        raise _analysis_error(
            spark,
            "EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE",
            eventName=f'"{field.name}"',
            eventType=f'"{field.dataType.simpleString().upper()}"',
        )
    return output.withMetadata(field.name, {DELAY_KEY: max(delays_ms)})


def _analysis_error(spark: SparkSession, condition: str, **parameters: str) -> Exception:
    """Spark's AnalysisException of this error condition, with Spark's message. With Spark Connect
    the message is the condition and its parameters."""
    if not is_connect(spark):
        jvm: Any = spark._jvm
        scala_parameters = jvm.PythonUtils.toScalaMap(parameters)
        error = jvm.org.apache.spark.sql.AnalysisException(condition, scala_parameters)
        return convert_exception(error)
    from pyspark.errors.exceptions.connect import AnalysisException

    described = ", ".join(f"{name} {value}" for name, value in parameters.items())
    return AnalysisException(
        f"[{condition}] {described}".strip(),
        errorClass=condition,
        messageParameters=parameters,
        sql_state=_SQL_STATES[condition],
    )
