"""Time of an epoch, and the part of the time that a processor sees.

All tasks of an epoch have the same time, also when the epoch runs again. So timers of the same time
fire in the same epoch for all keys.
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
    """Times of an epoch, in milliseconds since 1970.

    - `batch_ms`: when Spark planned the micro-batch.
    - `watermark_ms`: no row with an earlier event time is expected; 0 before the first row.
    - `late_watermark_ms`: rows up to this time are late.

    A batch DataFrame has no watermarks: both are NO_WATERMARK.
    """

    batch_ms: int
    watermark_ms: int
    late_watermark_ms: int


def time_mode_named(name: object) -> str:
    """Return Spark's spelling of a time mode. `name`: the time mode in upper or lower case. Raises
    an error with Spark's condition for an unknown name."""
    for mode in TIME_MODES:
        if mode.lower() == str(name).lower():
            return mode
    raise unknown_time_mode(name)


ShownTime = Callable[[EpochTime | None], TimerValues]
"""Returns the time that a processor sees. The argument is the epoch's time, None if the subtask
does not know the time. Each time mode has its own function."""


def no_time(time: EpochTime | None) -> TimerValues:
    """Return no time: in time mode "None" a processor sees no time, as in Spark."""
    return TimerValues()


def both_times(time: EpochTime | None) -> TimerValues:
    """Return the batch's time and the watermark, for time modes "ProcessingTime" and "EventTime".
    Return no time if `time` is None. `time` is None only for a subtask without rows, whose
    processor is not called."""
    return TimerValues() if time is None else TimerValues(time.batch_ms, time.watermark_ms)
