"""Barriers of all subtasks of one run, epoch and parallelism make a completed checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pytest

from checkpoint_store.epochs.barrier_alignment import align
from checkpoint_store.epochs.completed_checkpoint import Barrier, Run
from tests.unit.checkpoint_store.files.test_document import BARRIER

RUN = Run(2, "run-b")


def barrier(
    subtask: int,
    attempt: int = 1,
    *,
    run: Run = RUN,
    base_epoch: int | None = 4,
    parallelism: int = 2,
) -> Barrier:
    return replace(
        BARRIER,
        barrier_id=f"b{subtask}.{attempt}",
        epoch=5,
        subtask=subtask,
        parallelism=parallelism,
        run=run,
        attempt=attempt,
        base_epoch=base_epoch,
    )


@pytest.mark.parametrize(
    "other", [barrier(1, run=Run(2, "run-a")), barrier(1, parallelism=3)], ids=["run", "width"]
)
def test_barriers_of_another_run_or_parallelism_do_not_count(other: Barrier) -> None:
    assert align([barrier(0), other], 5, RUN, 2).missing() == (1,)


def test_a_barrier_that_started_from_an_older_epoch_does_not_count() -> None:
    zombie = barrier(0, 99, base_epoch=3)
    assert align([zombie, barrier(1)], 5, RUN, 2).missing() == (0,)
    assert align([zombie, barrier(1), barrier(0)], 5, RUN, 2).barriers[0] == barrier(0)


def test_a_barrier_that_started_from_nothing_is_older_than_any_other() -> None:
    assert align([barrier(0, base_epoch=None), barrier(1)], 5, RUN, 2).missing() == (0,)
    first = [barrier(0, base_epoch=None), barrier(1, base_epoch=None)]
    assert align(first, 5, RUN, 2).completed() is not None
