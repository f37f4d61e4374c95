"""Time modes, and the event times that the driver finds in the rows of an operator.

Spark marks the column that `withWatermark` is called on, and windows of it, in the column's
metadata. In time mode "EventTime" there must be one such column: rows are late by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField

from spark_state.checkpointing.watermarks import Policy
from spark_state.errors import ConfigurationError
from spark_state.processor.condition_errors import unknown_time_mode
from spark_state.processor.epoch_time import ShownTime, both_times, no_time
from spark_state.processor.event_times import EventTimes
from spark_state.spark.operator.spark_conditions import analysis_error

_DELAY = "spark.watermarkDelayMs"
_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


class TimeMode(Enum):
    """What an operator knows of time; the values are Spark's names of the modes."""

    NONE = "None"
    PROCESSING_TIME = "ProcessingTime"
    EVENT_TIME = "EventTime"

    @property
    def shown_time(self) -> ShownTime:
        """What a processor sees of an epoch's time."""
        return no_time if self is TimeMode.NONE else both_times


def time_mode_of(name: str) -> TimeMode:
    """The mode of this name, in upper or lower case. Raises an error with Spark's condition for any
    other."""
    for mode in TimeMode:
        if mode.value.lower() == str(name).lower():
            return mode
    raise unknown_time_mode(name)


def event_times(
    df: DataFrame, row_fields: Sequence[StructField], mode: TimeMode
) -> EventTimes | None:
    """Where the rows of an operator on `df` have their event times; None in time mode "None".

    `row_fields`: the columns of a row. Raises Spark's own error if several of them are event times,
    and ConfigurationError if a stream has none, in time mode "EventTime".
    """
    if mode is TimeMode.NONE:
        return None
    spark = df.sparkSession
    marked = [index for index, field in enumerate(row_fields) if _DELAY in field.metadata]
    is_event_time = mode is TimeMode.EVENT_TIME and df.isStreaming
    if is_event_time and len(marked) > 1:
        names = ", ".join(row_fields[index].name for index in marked)
        raise analysis_error(spark, "MULTIPLE_EVENT_TIME_COLUMNS", eventTimeCols=f"({names})")
    if is_event_time and not marked:
        raise ConfigurationError(
            'time mode "EventTime" needs a watermark, and no column of the grouped DataFrame has '
            "one: call withWatermark(column, delay) before groupBy, and keep the column"
        )
    delays_ms = tuple(int(row_fields[index].metadata[_DELAY]) for index in marked[:1])
    return EventTimes(
        index=marked[0] if marked else None,
        delays_ms=delays_ms,
        policy=_policy(spark),
        drops_late=is_event_time,
    )


def _policy(spark: SparkSession) -> Policy:
    return "max" if str(spark.conf.get(_POLICY)).lower() == "max" else "min"
