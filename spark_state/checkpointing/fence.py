"""Fencing (I9): a host refuses an attempt of an older run, an attempt of an older epoch, and an
older attempt of the same epoch."""

from __future__ import annotations

from checkpoint_store.epochs.subtask_attempt import SubtaskAttempt
from spark_state.errors import FencedError


def check_newest(newest: SubtaskAttempt | None, attempt: SubtaskAttempt) -> None:
    """Raise FencedError if `attempt` is older than `newest`. `newest`: the newest attempt that the
    host has accepted for the subtask."""
    if newest is None or newest <= attempt:
        return
    part = (
        "run" if attempt.run != newest.run else "epoch" if attempt.epoch != newest.epoch else "task"
    )
    raise FencedError(
        f"subtask {attempt.subtask}: epoch {attempt.epoch}, attempt {attempt.attempt} of run "
        f"{attempt.run.run_id} comes after epoch {newest.epoch}, attempt {newest.attempt} of run "
        f"{newest.run.run_id}: a newer {part} took over, nothing was changed. If two queries use "
        "one checkpoint location, stop one of them. If foreachBatch runs two actions on a batch at "
        "the same time, persist() it first. If the query unites or joins the operator's output "
        "with itself, use a second operator there, with a name of its own"
    )
