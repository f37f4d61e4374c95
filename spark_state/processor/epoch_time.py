"""The time of an epoch, and what a processor sees of it.

Every task of an epoch has the same time, also when the epoch runs again: what fires at a time fires
in one epoch for all keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql.streaming.stateful_processor import TimerValues

from spark_state.processor.condition_errors import unknown_time_mode

NO_WATERMARK = -1
TIME_MODES = ("None", "ProcessingTime", "EventTime")


@dataclass(frozen=True, slots=True)
class EpochTime:
    """Milliseconds since 1970.

    `batch_ms`: when Spark planned the micro-batch; `watermark_ms`: no row of an earlier event time
    is expected, 0 before the first row; `late_watermark_ms`: rows up to it are late. A batch
    DataFrame has no watermarks: NO_WATERMARK.
    """

    batch_ms: int
    watermark_ms: int
    late_watermark_ms: int


def time_mode_named(name: object) -> str:
    """Spark's name of a time mode, given in upper or lower case. Raises an error with Spark's
    condition for any other."""
    for mode in TIME_MODES:
        if mode.lower() == str(name).lower():
            return mode
    raise unknown_time_mode(name)


ShownTime = Callable[[EpochTime | None], TimerValues]
"""What a processor sees of an epoch's time (None: nobody knows it). One for each time mode."""


def no_time(time: EpochTime | None) -> TimerValues:
    """In time mode "None" a processor sees no time, as in Spark."""
    return TimerValues()


def both_times(time: EpochTime | None) -> TimerValues:
    """In the other time modes a processor sees the batch's time and the watermark. A subtask that
    knows no time has no row to show it with."""
    return TimerValues() if time is None else TimerValues(time.batch_ms, time.watermark_ms)
