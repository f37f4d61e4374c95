"""A manifest's name holds a summary of all barriers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_store.epochs.checkpoint_summary import CheckpointSummary, joined, summary_of_text
from checkpoint_store.epochs.completed_checkpoint import SubtaskTime

milliseconds = st.integers(-(10**12), 10**14)
times = st.builds(
    SubtaskTime,
    watermark_ms=milliseconds,
    reached_ms=st.lists(st.none() | milliseconds, max_size=2).map(tuple),
    next_timer_ms=st.none() | milliseconds,
    batch_ms=st.none() | milliseconds,
)
summaries = st.builds(
    CheckpointSummary,
    is_contested=st.booleans(),
    has_operator_state=st.booleans(),
    broadcast=st.sampled_from(["", "0123456789ab", None]),
    time=st.none() | times,
)


@given(summaries)
def test_a_summary_is_what_its_text_says(summary: CheckpointSummary) -> None:
    text = summary.to_text()
    assert summary_of_text(text) == summary


def test_a_summary_that_is_too_long_for_a_name_has_no_text() -> None:
    time = SubtaskTime(10**13, (10**13,) * 9, 10**13, 10**13)
    assert CheckpointSummary(time=time).to_text() == ""


@pytest.mark.parametrize(
    "text", ["", "c", "s_", "s_z", "s_c_c", "s_o_c", "s_t1", "s_tx.x.x", "s_t1.2.3.q", "s_t01.2.3"]
)
def test_what_is_no_summary_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        summary_of_text(text)


@given(st.lists(summaries, min_size=1, max_size=6), st.integers(1, 5))
def test_groups_are_summed_up_as_members_are(members: list[CheckpointSummary], cut: int) -> None:
    groups = [members[:cut], members[cut:]]
    by_groups = joined([joined(group) for group in groups if group])
    assert by_groups == joined(members)


def test_times_are_the_latest_and_the_next_timer() -> None:
    first = CheckpointSummary(time=SubtaskTime(1, (5, None), 30, None))
    second = CheckpointSummary(time=SubtaskTime(2, (4, 7, 9), None, 11))
    assert joined([first, CheckpointSummary(), second]).time == SubtaskTime(2, (5, 7, 9), 30, 11)


def test_broadcast_states_agree_only_if_all_subtasks_have_the_same() -> None:
    some, none = CheckpointSummary(broadcast="abc"), CheckpointSummary()
    assert joined([some, some]).broadcast == "abc"
    assert joined([none, none]).broadcast == ""
    assert joined([some, none]).broadcast is None
    assert joined([some, CheckpointSummary(broadcast="def")]).broadcast is None
