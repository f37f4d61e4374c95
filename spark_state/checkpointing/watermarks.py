"""The watermark of an epoch, computed from the barriers of its base. Pure.

A subtask sees only its own rows, so no subtask knows the watermark alone. Each subtask notes in its
barrier how far event times have come, and every subtask of the next epoch reads all barriers. So
the watermark is like union state of the subtasks: equal on all subtasks, equal when the epoch runs
again, and independent of the parallelism.

    rows of epoch n       -> reached_ms in the barriers of n -> watermark of epoch n + 1
    watermark of epoch n                                     -> late watermark of epoch n + 1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from checkpoint_store.epochs.checkpoint_summary import farthest
from checkpoint_store.epochs.completed_checkpoint import SubtaskTime

Policy = Literal["min", "max"]

_BEFORE_THE_FIRST_ROW = 0


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The watermarks of an epoch, in milliseconds since 1970.

    `watermark_ms`: timers up to this time expire. `late_watermark_ms`: rows up to this time are
    late; the value is the watermark of the preceding epoch, which has fired the timers up to this
    time. `reached_ms`: see SubtaskTime.
    """

    watermark_ms: int
    late_watermark_ms: int
    reached_ms: tuple[int | None, ...]


def watermarks_after(base: Sequence[SubtaskTime], upstreams: int, policy: Policy) -> Watermarks:
    """Return the watermarks of the epoch that starts from the barriers with the times `base`.

    `upstreams`: number of watermarks that the query sets upstream of the operator; `policy`: use
    the least or the greatest of these watermarks. A watermark without any row yet counts as 0, as
    in Spark.
    """
    late_ms = max((time.watermark_ms for time in base), default=_BEFORE_THE_FIRST_ROW)
    reached = joined(upstreams, *(time.reached_ms for time in base))
    counted = [_BEFORE_THE_FIRST_ROW if ms is None else ms for ms in reached]
    chosen = (min if policy == "min" else max)(counted, default=_BEFORE_THE_FIRST_ROW)
    return Watermarks(max(late_ms, chosen), late_ms, reached)


def joined(upstreams: int, *reached: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """Return for each of the `upstreams` watermarks the greatest time in all of `reached`; None for
    a watermark without rows."""
    return farthest([(None,) * upstreams, *reached])[:upstreams]
