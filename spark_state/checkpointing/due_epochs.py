"""Decides if an operator needs an epoch without rows. Pure.

A batch without rows costs nearly as much as a batch with rows. So the operator asks Spark for an
empty batch only if the epoch has work to do: fire a timer, or move the watermark that decides which
rows are late.
"""

from __future__ import annotations

from collections.abc import Sequence

from checkpoint_store.epochs.completed_checkpoint import SubtaskTime
from spark_state.checkpointing.watermarks import Policy, watermarks_after


def is_due(
    newest: Sequence[SubtaskTime], now_ms: int, policy: Policy | None, *, after_tick: bool
) -> bool:
    """Return True if the next epoch would move the watermark or fire timers.

    - `newest`: times of the subtasks in the newest epoch.
    - `now_ms`: current time. In processing time, timers up to `now_ms` are expired.
    - `policy`: see the module watermarks; None for an operator in processing time.
    - `after_tick`: True if the newest epoch was a tick: a batch that an operator's clock asked for.

    In event time, expired timers alone do not make an epoch due after a tick. The tick has fired
    all timers that had expired, so an expired timer that is left was registered during the tick.
    This timer waits for the next batch, as in Spark's own operator. If the timer made an epoch due,
    a processor that registers such a timer in every tick would keep the query from ending.
    """
    if policy is None:
        return _has_expired(newest, now_ms)
    upstreams = max((len(time.reached_ms) for time in newest), default=0)
    next_epoch = watermarks_after(newest, upstreams, policy)
    is_new = next_epoch.watermark_ms > next_epoch.late_watermark_ms
    return is_new or (not after_tick and _has_expired(newest, next_epoch.watermark_ms))


def _has_expired(times: Sequence[SubtaskTime], by_ms: int) -> bool:
    return any(time.next_timer_ms is not None and time.next_timer_ms <= by_ms for time in times)
