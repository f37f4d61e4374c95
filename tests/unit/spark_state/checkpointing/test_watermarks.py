"""The watermark of the next epoch follows from the barriers of the last epoch."""

from __future__ import annotations

import pytest

from checkpoint_store.epochs.completed_checkpoint import SubtaskTime
from spark_state.checkpointing.watermarks import Policy, Watermarks, joined, watermarks_after

ReachedMs = tuple[int | None, ...]


def barrier(watermark_ms: int, *reached_ms: int | None) -> SubtaskTime:
    return SubtaskTime(watermark_ms, reached_ms, next_timer_ms=None, batch_ms=None)


def test_before_the_first_epoch_the_watermark_is_0() -> None:
    assert watermarks_after([], 1, "min") == Watermarks(0, 0, (None,))
    assert watermarks_after([], 0, "min") == Watermarks(0, 0, ())


def test_the_farthest_subtask_sets_the_watermark_and_the_one_before_becomes_the_late_one() -> None:
    base = [barrier(40, 70), barrier(40, None), barrier(40, 90)]
    assert watermarks_after(base, 1, "min") == Watermarks(90, 40, (90,))


def test_a_watermark_never_goes_back() -> None:
    assert watermarks_after([barrier(40, 30)], 1, "min") == Watermarks(40, 40, (30,))
    assert watermarks_after([barrier(0, -5)], 1, "min") == Watermarks(0, 0, (-5,))


@pytest.mark.parametrize(
    ("policy", "reached", "expected"),
    [
        ("min", (50, 20), 20),
        ("max", (50, 20), 50),
        ("min", (50, None), 0),
        ("max", (50, None), 50),
        ("max", (None, None), 0),
    ],
)
def test_the_policy_chooses_among_several_and_one_without_rows_counts_as_0(
    policy: Policy, reached: ReachedMs, expected: int
) -> None:
    assert watermarks_after([barrier(0, *reached)], 2, policy).watermark_ms == expected


def test_another_number_of_watermarks_after_a_restart_keeps_what_there_was() -> None:
    base = [barrier(40, 50, 60)]
    assert watermarks_after(base, 1, "min") == Watermarks(50, 40, (50,))
    assert watermarks_after(base, 3, "min") == Watermarks(40, 40, (50, 60, None))
    assert watermarks_after(base, 0, "min") == Watermarks(40, 40, ())


def test_joined_is_the_farthest_of_each() -> None:
    assert joined(3, (1, None, 5), (None, None, 7)) == (1, None, 7)
    assert joined(2) == (None, None)
