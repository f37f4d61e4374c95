"""The watermark of an epoch, from what the barriers of its base say. Pure.

A subtask sees only its own rows, so no subtask knows the watermark alone. Each one puts into its
barrier how far its rows have come, and every subtask of the next epoch reads the barriers of all.
So the watermark is the union state of the subtasks: it is the same for all of them, it is the same
when the epoch runs again, and another parallelism does not change it.

    rows of epoch n -> reached_ms of its barriers -> watermark of epoch n + 1 -> its late watermark
                                                                                 is that of epoch n
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from checkpoint_store.operators.checkpoint_summary import farthest
from checkpoint_store.operators.completed_checkpoint import SubtaskTime

Policy = Literal["min", "max"]

_BEFORE_THE_FIRST_ROW = 0


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Milliseconds since 1970.

    `watermark_ms`: timers up to it expire; `late_watermark_ms`: rows up to it are late. This is the
    watermark of the epoch before: a row that the epoch before would have taken is never late.
    `reached_ms`: see SubtaskTime.
    """

    watermark_ms: int
    late_watermark_ms: int
    reached_ms: tuple[int | None, ...]


def watermarks_after(base: Sequence[SubtaskTime], upstreams: int, policy: Policy) -> Watermarks:
    """The watermarks of the epoch that starts from the barriers with these times.

    `upstreams`: how many watermarks the query sets above the operator; `policy`: whether the least
    or the greatest of them counts. One without any row yet counts as 0, as in Spark.
    """
    late_ms = max((time.watermark_ms for time in base), default=_BEFORE_THE_FIRST_ROW)
    reached = joined(upstreams, *(time.reached_ms for time in base))
    counted = [_BEFORE_THE_FIRST_ROW if ms is None else ms for ms in reached]
    chosen = (min if policy == "min" else max)(counted, default=_BEFORE_THE_FIRST_ROW)
    return Watermarks(max(late_ms, chosen), late_ms, reached)


def joined(upstreams: int, *reached: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """For each of the `upstreams`, the farthest that any has come."""
    return farthest([(None,) * upstreams, *reached])[:upstreams]
