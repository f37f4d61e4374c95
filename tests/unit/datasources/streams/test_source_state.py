"""A batch's parts are dealt round robin to tasks; every task gets the watermarks and the table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_store.epochs.operator_layout import BarrierName, EpochDirectory
from checkpoint_store.files.key_group_range import KeyGroupRange
from datasources.errors import StateReplacedError
from datasources.streams.source_state import Part, SourceState, TableFacts

FACTS = TableFacts(("id", "größe"), 128, sequenced=True)
BARRIER = BarrierName(EpochDirectory(8, 3), 1, 4, 0, "ab" * 6)

key_groups = st.tuples(st.integers(0, 127), st.integers(0, 127)).map(
    lambda pair: KeyGroupRange(min(pair), max(pair))
)
epochs = st.integers(0, 1 << 40)
directories = st.builds(EpochDirectory, epochs, st.integers(0, 9_999_999_999))
barriers = st.builds(replace, st.just(BARRIER), directory=directories)
ahead = st.lists(st.tuples(barriers, epochs), max_size=3).map(
    lambda pairs: {name.directory.epoch: (name, time_ms) for name, time_ms in pairs}
)
parts = st.builds(
    Part,
    key_groups,
    st.none() | epochs,
    epochs,
    st.booleans(),
    st.none() | st.integers(1, 9),
    ahead,
)
states = st.builds(
    SourceState,
    st.lists(parts, max_size=9).map(tuple),
    st.dictionaries(st.integers(0, 1000), st.integers(-(1 << 40), 1 << 40), max_size=5),
    st.just(FACTS),
)


@given(states, st.integers(1, 9))
def test_each_part_goes_to_one_task_and_all_else_to_each(state: SourceState, tasks: int) -> None:
    snapshot = state.to_snapshot()
    dealt = [SourceState.restored(snapshot, task, tasks) for task in range(tasks)]
    parts: list[Part | None] = [None] * len(state.parts)
    for task, share in enumerate(dealt):
        parts[task::tasks] = share.parts
        assert share.watermarks_ms == state.watermarks_ms
        assert share.watermark_ms == min(state.watermarks_ms.values(), default=None)
        assert share.facts == FACTS
    assert tuple(parts) == state.parts


@pytest.mark.parametrize(
    ("other", "fact", "now"),
    [
        (replace(FACTS, keys=("id",)), "keys", "['id']"),
        (replace(FACTS, max_parallelism=64), "maxParallelism", "64"),
        (replace(FACTS, sequenced=False), "sequenced", "False"),
        (replace(FACTS, ignores_nulls=True), "ignoresNulls", "True"),
    ],
)
def test_another_state_at_the_url_is_refused(other: TableFacts, fact: str, now: str) -> None:
    FACTS.check("s3://b/t", TableFacts.decode(FACTS.encode()))
    with pytest.raises(StateReplacedError, match=rf"s3://b/t .* its {fact} is ") as raised:
        other.check("s3://b/t", FACTS)
    assert f"{fact} is {now} and was" in str(raised.value)
