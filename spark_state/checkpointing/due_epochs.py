"""Whether an operator needs an epoch without rows. Pure.

A batch without rows costs nearly as much as a batch with rows, so Spark is asked for one only when
its epoch would do something: fire a timer, or move the watermark by which rows are late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from checkpoint_store.operators.completed_checkpoint import SubtaskTime
from spark_state.checkpointing.watermarks import Policy, watermarks_after


@dataclass(frozen=True, slots=True)
class DueInProcessingTime:
    """Timers expire at their time."""

    def __call__(self, newest: Sequence[SubtaskTime], now_ms: int, *, after_tick: bool) -> bool:
        """Whether a timer has expired at `now_ms`. `newest`: the times of the newest epoch."""
        return _is_due(newest, now_ms)


@dataclass(frozen=True, slots=True)
class DueInEventTime:
    """Timers expire when the watermark passes them. `policy`: see watermarks.

    An epoch is due whenever the watermark has moved, as with Spark's own operator: after the epoch,
    rows up to the new watermark are late.
    """

    policy: Policy

    def __call__(self, newest: Sequence[SubtaskTime], now_ms: int, *, after_tick: bool) -> bool:
        """Whether the epoch after `newest` has a new watermark, or fires timers.

        After a tick all timers that had expired have fired: the others were registered while they
        did, and wait for the next batch, as with Spark's own operator. Otherwise such timers could
        keep a query from ending.
        """
        upstreams = max((len(time.reached_ms) for time in newest), default=0)
        next_epoch = watermarks_after(newest, upstreams, self.policy)
        is_new = next_epoch.watermark_ms > next_epoch.late_watermark_ms
        return is_new or (not after_tick and _is_due(newest, next_epoch.watermark_ms))


def _is_due(times: Sequence[SubtaskTime], by_ms: int) -> bool:
    return any(time.next_timer_ms is not None and time.next_timer_ms <= by_ms for time in times)
