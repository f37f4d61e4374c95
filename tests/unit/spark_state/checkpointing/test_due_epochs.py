"""An epoch without rows is due only if a timer or the watermark needs the epoch."""

from __future__ import annotations

import pytest

from checkpoint_store.epochs.completed_checkpoint import SubtaskTime
from spark_state.checkpointing.due_epochs import is_due

NOW = 1_000


@pytest.mark.parametrize(
    ("timers", "expected"),
    [
        ([], False),
        ([None, None], False),
        ([None, NOW + 1], False),
        ([NOW + 1, NOW], True),
        ([NOW - 5, None], True),
    ],
)
def test_in_processing_time_a_timer_is_due_at_its_time(
    timers: list[int | None], expected: bool
) -> None:
    times = [SubtaskTime(0, (), timer, None) for timer in timers]
    assert is_due(times, NOW, None, after_tick=True) is expected


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([], False),
        ([SubtaskTime(40, (90,), None, None)], True),
        ([SubtaskTime(40, (90,), 91, None)], True),
        ([SubtaskTime(40, (None,), None, None), SubtaskTime(40, (90,), None, None)], True),
        ([SubtaskTime(90, (90,), 50, None)], False),
        ([SubtaskTime(90, (80,), None, None)], False),
        ([SubtaskTime(40, (90, None), 41, None)], False),
    ],
    ids=[
        "no epoch yet",
        "rows have come further",
        "the watermark is before the timer",
        "rows of another subtask have come further",
        "the watermark is no new one",
        "the watermark was ahead",
        "another watermark has had no rows",
    ],
)
def test_in_event_time_after_a_tick_an_epoch_is_due_if_its_watermark_is_a_new_one(
    times: list[SubtaskTime], expected: bool
) -> None:
    assert is_due(times, NOW, "min", after_tick=True) is expected


def test_in_event_time_the_policy_of_several_watermarks_counts() -> None:
    times = [SubtaskTime(50, (90, 50), None, None)]
    assert not is_due(times, NOW, "min", after_tick=True)
    assert is_due(times, NOW, "max", after_tick=True)


def test_in_event_time_what_did_not_fire_for_want_of_a_tick_is_due() -> None:
    times = [SubtaskTime(90, (90,), 90, None)]
    assert is_due(times, NOW, "min", after_tick=False)
    assert not is_due([SubtaskTime(90, (90,), 91, None)], NOW, "min", after_tick=False)
