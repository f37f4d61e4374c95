"""I9 as a script: the accepted claim, the next claim, and the refusal with its reason."""

from __future__ import annotations

import pytest

from checkpoint_store.epochs.completed_checkpoint import Run
from spark_state.checkpointing.fence import Claim, check_claim
from spark_state.errors import FencedError

FIRST, SECOND = Run(1, "first"), Run(2, "second")

REFUSED = [
    (Claim(SECOND, 3, 10), Claim(FIRST, 9, 99), "a newer run took over"),
    (Claim(FIRST, 3, 10), Claim(FIRST, 2, 99), "a newer epoch took over"),
    (Claim(FIRST, 3, 10), Claim(FIRST, 3, 9), "a newer task took over"),
]
ACCEPTED = [
    (None, Claim(FIRST, 0, 0)),
    (Claim(FIRST, 3, 10), Claim(FIRST, 3, 11)),
    (Claim(FIRST, 3, 10), Claim(FIRST, 4, 11)),
    (Claim(FIRST, 9, 10), Claim(SECOND, 3, 1)),
    (Claim(FIRST, 3, 10), Claim(FIRST, 3, 10)),
]


@pytest.mark.parametrize(("newest", "claim", "why"), REFUSED)
def test_an_older_run_epoch_or_attempt_is_refused(newest: Claim, claim: Claim, why: str) -> None:
    with pytest.raises(FencedError, match=why):
        check_claim(newest, claim, subtask=0)


@pytest.mark.parametrize(("newest", "claim"), ACCEPTED)
def test_the_newest_claim_and_any_newer_one_pass(newest: Claim | None, claim: Claim) -> None:
    check_claim(newest, claim, subtask=0)
