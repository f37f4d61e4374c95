"""I9 as a script: the accepted attempt, the next attempt, and the refusal with its reason."""

from __future__ import annotations

import pytest

from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.epochs.subtask_attempt import SubtaskAttempt
from spark_state.checkpointing.fence import check_newest
from spark_state.errors import FencedError

FIRST, SECOND = Run(1, "first"), Run(2, "second")


def attempt(run: Run, epoch: int, task: int) -> SubtaskAttempt:
    return SubtaskAttempt(run, epoch, 0, task)


REFUSED = [
    (attempt(SECOND, 3, 10), attempt(FIRST, 9, 99), "a newer run took over"),
    (attempt(FIRST, 3, 10), attempt(FIRST, 2, 99), "a newer epoch took over"),
    (attempt(FIRST, 3, 10), attempt(FIRST, 3, 9), "a newer task took over"),
]
ACCEPTED = [
    (None, attempt(FIRST, 0, 0)),
    (attempt(FIRST, 3, 10), attempt(FIRST, 3, 11)),
    (attempt(FIRST, 3, 10), attempt(FIRST, 4, 11)),
    (attempt(FIRST, 9, 10), attempt(SECOND, 3, 1)),
    (attempt(FIRST, 3, 10), attempt(FIRST, 3, 10)),
]


@pytest.mark.parametrize(("newest", "other", "why"), REFUSED)
def test_an_older_run_epoch_or_attempt_is_refused(
    newest: SubtaskAttempt, other: SubtaskAttempt, why: str
) -> None:
    with pytest.raises(FencedError, match=why):
        check_newest(newest, other)


@pytest.mark.parametrize(("newest", "other"), ACCEPTED)
def test_the_newest_attempt_and_any_newer_one_pass(
    newest: SubtaskAttempt | None, other: SubtaskAttempt
) -> None:
    check_newest(newest, other)
