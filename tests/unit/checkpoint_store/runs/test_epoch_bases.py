"""The first epoch of a run finds its base, even if other runs have written epochs, too."""

from __future__ import annotations

import pytest

from checkpoint_store.epochs.checkpoint_share import AskedKeyGroups
from checkpoint_store.runs.run_errors import ContradictingRunsError
from tests.support.operators.counts_operator import (
    MAX_PARALLELISM,
    CountsOperator,
    state_before,
)
from tests.support.operators.taken_back import CHECKPOINT
from tests.support.stores.fake_object_store import DictObjectStore


def test_no_run_of_an_epoch_wins_by_its_number() -> None:
    objects = DictObjectStore()
    CountsOperator(objects, "run-z").run_epoch(0, {0: 1}, attempt=100)
    CountsOperator(objects, "run-b").run_epoch(0, {0: 2}, attempt=1)
    with pytest.raises(ContradictingRunsError, match=r"runs 1 and 2 .* epoch 0"):
        state_before(objects, 1)


def test_copies_that_told_no_location_and_both_went_on_are_no_base() -> None:
    """The newest epochs, which a start lists first, show no sign of the other copy."""
    objects = DictObjectStore()
    first, second = (CountsOperator(objects, run_id) for run_id in ("run-a", "run-b"))
    for epoch in range(4):
        first.run_epoch(epoch, {0: epoch})
    base = first.checkpoints.latest_before(2)
    for epoch in range(2, 7):
        for subtask in range(2):
            second.run_subtask(epoch, subtask, {0: 10 * epoch}, base)
        second.checkpoints.complete(epoch, second.run, 2)
    third = CountsOperator(objects, "run-c")
    third.checkpoints.starts.note_checkpoint(third.run, CHECKPOINT)
    asked = AskedKeyGroups.of_subtask(MAX_PARALLELISM, 2, 0)
    with pytest.raises(ContradictingRunsError, match=r"runs 1 and 2 .* epoch 2"):
        third.checkpoints.bases.before(7, third.run, asked)
