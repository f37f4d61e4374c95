"""Fencing (I9): a host refuses an older run, an older attempt, or an epoch behind its own."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_store.epochs.completed_checkpoint import Run
from spark_state.errors import FencedError


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """A request's right to a subtask: the greater of two claims wins.

    `run`: the query's run; `epoch`: Spark's batch id; `attempt`: Spark's task attempt id, which
    grows over the life of the application.
    """

    run: Run
    epoch: int
    attempt: int


def check_claim(newest: Claim | None, claim: Claim, subtask: int) -> None:
    """Raise FencedError if `claim` is older than `newest`, the newest claim the host has
    accepted."""
    if newest is None or newest <= claim:
        return
    part = "run" if claim.run != newest.run else "epoch" if claim.epoch != newest.epoch else "task"
    raise FencedError(
        f"subtask {subtask}: epoch {claim.epoch}, attempt {claim.attempt} of run "
        f"{claim.run.run_id} comes after epoch {newest.epoch}, attempt {newest.attempt} of run "
        f"{newest.run.run_id}: a newer {part} took over, nothing was changed. If two queries use "
        "one checkpoint location, stop one of them. If foreachBatch runs two actions on a batch at "
        "the same time, persist() it first. If the query unites or joins the operator's output "
        "with itself, use a second operator there, with a name of its own"
    )
