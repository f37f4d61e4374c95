"""Two offsets whose channels are at different epochs give the right stretches to read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_store.epochs.completed_checkpoint import CompletedCheckpoint
from checkpoint_store.files.key_group_range import KeyGroupRange, subtask_of_key_group
from datasources.streams.channel_positions import (
    ChannelPosition,
    Positions,
    StreamProgress,
    Stretch,
    decode_positions,
    encode_positions,
    still_counts,
    stretches,
)
from tests.support.operators.counts_operator import CountsOperator
from tests.support.stores.fake_object_store import DictObjectStore

MAX_PARALLELISM = 8


def at(
    subtask: int, epoch: int, run: int = 1, attempt: int = 1, parallelism: int = 2
) -> ChannelPosition:
    return ChannelPosition(subtask, epoch, run, attempt, parallelism)


def reached(version: int | None, *ahead: ChannelPosition) -> StreamProgress:
    return StreamProgress(version, {position.subtask: position for position in ahead})


class TestStretches:
    def test_without_channels_all_key_groups_are_read_at_once(self) -> None:
        planned = stretches(reached(3), reached(5), MAX_PARALLELISM)
        assert planned == [Stretch(KeyGroupRange(0, 7), 3, 5)]
        assert stretches(reached(5), reached(5), MAX_PARALLELISM) == []
        assert stretches(reached(None), reached(None), MAX_PARALLELISM) == []

    @given(st.data())
    def test_each_key_group_is_read_once_from_start_to_end(self, data: st.DataObject) -> None:
        versions = sorted(data.draw(st.lists(st.integers(-1, 5), min_size=2, max_size=2)))
        before, after = (
            StreamProgress(None if version < 0 else version, data.draw(positions_after(version)))
            for version in versions
        )
        planned = stretches(before, after, MAX_PARALLELISM)
        for key_group in range(MAX_PARALLELISM):
            first, _ = epoch_of(before, key_group)
            last, channel = epoch_of(after, key_group)
            read = [
                (stretch.start, stretch.end, stretch.channel)
                for stretch in planned
                if key_group in stretch.key_groups
            ]
            is_read = last is not None and (first is None or first < last)
            assert read == ([(first, last, channel)] if is_read else [])


@st.composite
def positions_after(draw: st.DrawFn, version: int) -> Positions:
    parallelism = draw(st.integers(1, MAX_PARALLELISM))
    subtasks = draw(st.sets(st.integers(0, parallelism - 1)))
    epochs = st.integers(version + 1, version + 3)
    return {subtask: at(subtask, draw(epochs), parallelism=parallelism) for subtask in subtasks}


def epoch_of(where: StreamProgress, key_group: int) -> tuple[int | None, int | None]:
    """Return the epoch of a key group, and its channel if the channel is ahead."""
    for position in where.ahead.values():
        owner = subtask_of_key_group(key_group, MAX_PARALLELISM, position.parallelism)
        if owner == position.subtask:
            return position.epoch, owner
    return where.version, None


class TestWhatStillCounts:
    @pytest.mark.parametrize(
        ("position", "counts"),
        [
            (at(1, 4), True),
            (at(1, 4, attempt=2), False),
            (at(1, 4, run=2), False),
            (at(1, 4, parallelism=4), False),
        ],
    )
    def test_only_a_barrier_of_a_whole_epoch(self, position: ChannelPosition, counts: bool) -> None:
        operator = CountsOperator(DictObjectStore())
        whole = operator.run_epoch(4, {7: 1})
        versions: dict[int, CompletedCheckpoint | None] = {4: whole}
        assert still_counts(position, reached(6), versions.get) == counts

    def test_an_epoch_that_is_not_there_does_not(self) -> None:
        assert not still_counts(at(1, 4), reached(6), lambda version: None)

    @pytest.mark.parametrize(
        ("later", "counts"),
        [
            ([], False),
            ([at(0, 4)], False),
            ([at(1, 4)], True),
            ([at(1, 5, attempt=3)], True),
            ([at(1, 4, attempt=2)], False),
            ([at(1, 5, run=2)], False),
            ([at(1, 3)], False),
            ([at(1, 5, parallelism=3)], False),
        ],
    )
    def test_before_the_epoch_is_whole_only_the_same_barrier_or_a_later_epoch(
        self, later: list[ChannelPosition], counts: bool
    ) -> None:
        for version in (None, 3):
            end = reached(version, *later)
            assert still_counts(at(1, 4), end, lambda version: None) == counts


def test_positions_are_the_same_after_an_offset_was_stored() -> None:
    positions = {11: at(11, 7, parallelism=16), 2: at(2, 8, run=3, parallelism=16)}
    encoded = encode_positions(positions)
    assert list(encoded) == ["2", "11"]
    assert encoded["2"] == {"epoch": 8, "run": 3, "attempt": 1, "parallelism": 16}
    assert decode_positions(json.loads(json.dumps(encoded))) == positions
