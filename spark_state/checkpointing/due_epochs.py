"""Decides if an operator needs an epoch without rows. Pure.

A batch without rows costs nearly as much as a batch with rows. So the operator asks Spark for an
empty batch only if the epoch has work to do: fire a timer, or move the watermark that decides which
rows are late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from checkpoint_store.epochs.completed_checkpoint import SubtaskTime
from spark_state.checkpointing.watermarks import Policy, watermarks_after


@dataclass(frozen=True, slots=True)
class DueInProcessingTime:
    """The rule for operators in processing time: an epoch is due when a timer has expired."""

    def __call__(self, newest: Sequence[SubtaskTime], now_ms: int, *, after_tick: bool) -> bool:
        """Return True if a timer has expired at `now_ms`. `newest`: times of the subtasks in the
        newest epoch."""
        return _is_due(newest, now_ms)


@dataclass(frozen=True, slots=True)
class DueInEventTime:
    """The rule for operators in event time: an epoch is due when the watermark has moved or passes
    a timer. `policy`: see the module watermarks.

    Spark's own operator also runs an epoch whenever the watermark has moved: after the epoch, rows
    up to the new watermark are late.
    """

    policy: Policy

    def __call__(self, newest: Sequence[SubtaskTime], now_ms: int, *, after_tick: bool) -> bool:
        """Return True if the epoch after `newest` has a new watermark or fires timers.

        A tick is a batch that an operator's clock asked for. After a tick all timers that had
        expired have fired. A timer still left was registered during the tick and waits for the next
        batch, as with Spark's own operator. Otherwise such timers could keep a query from ending.
        """
        upstreams = max((len(time.reached_ms) for time in newest), default=0)
        next_epoch = watermarks_after(newest, upstreams, self.policy)
        is_new = next_epoch.watermark_ms > next_epoch.late_watermark_ms
        return is_new or (not after_tick and _is_due(newest, next_epoch.watermark_ms))


def _is_due(times: Sequence[SubtaskTime], by_ms: int) -> bool:
    return any(time.next_timer_ms is not None and time.next_timer_ms <= by_ms for time in times)
