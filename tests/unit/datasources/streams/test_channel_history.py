"""A channel's versions are the whole versions, followed by the channel's own versions."""

from __future__ import annotations

from typing import Any

import pytest

from checkpoint_store.epochs.operator_layout import BarrierName, EpochDirectory
from checkpoint_store.epochs.published_objects import PublishedObjects
from checkpoint_store.files.key_group_range import key_group_range_of_subtask
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.state_reader import StateReader
from datasources.streams.channel_history import ChannelHistory, barriers_ahead
from datasources.streams.channel_positions import ChannelPosition, position_of
from tests.support.operators.keyed_operator import KEYED, KeyedOperator
from tests.support.stores.fake_object_store import DictObjectStore

OWN = key_group_range_of_subtask(8, 2, 1)


@pytest.fixture
def objects() -> DictObjectStore:
    return DictObjectStore()


def whole_history(objects: DictObjectStore) -> OperatorHistory:
    return OperatorHistory(objects, KEYED, None)


def newest_barrier(objects: DictObjectStore, epoch: int, run: int, subtask: int) -> BarrierName:
    names = PublishedObjects(objects).barriers(EpochDirectory(epoch, run))
    return max((name for name in names if name.subtask == subtask), key=str)


def history_of_subtask_1(objects: DictObjectStore, epoch: int, after: int) -> ChannelHistory:
    position = position_of(newest_barrier(objects, epoch, 1, 1))
    operator = whole_history(objects)
    return ChannelHistory(operator, barriers_ahead(operator, {1: position}, after)[1])


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.fixture
def operator(objects: DictObjectStore) -> KeyedOperator:
    """Make an operator: epochs 0 and 1 are whole; in epoch 2, only subtask 1 has published."""
    operator = KeyedOperator(objects)
    operator.run_epoch(0, {0: 1, 4: 1, 7: 1})
    operator.run_epoch(1, {4: 2})
    objects.now = 30.0
    operator.run_subtask(2, 1, {4: 3, 5: 3}, operator.checkpoints.latest_before(2))
    return operator


class TestVersions:
    def test_an_epoch_that_is_not_whole_is_readable_for_the_key_groups_of_its_channel(
        self, objects: DictObjectStore, operator: KeyedOperator
    ) -> None:
        history = history_of_subtask_1(objects, 2, after=1)
        assert whole_history(objects).versions() == [0, 1]
        assert history.versions() == [0, 1, 2]
        assert (history.url, history.max_parallelism) == (objects.url, 8)
        assert history.at(2).info.timestamp_ms == 30_000
        reader = StateReader(history)
        assert sorted(rows_of(reader.read(2))) == [(4, 3), (5, 3), (7, 1)]
        assert sorted(rows_of(reader.read(1, OWN))) == [(4, 2), (7, 1)]

    def test_changes_lead_from_one_epoch_of_the_channel_to_the_next(
        self, objects: DictObjectStore, operator: KeyedOperator
    ) -> None:
        base = operator.checkpoints.latest_before(2)
        operator.run_subtask(3, 1, {5: 4}, base)
        reader = StateReader(history_of_subtask_1(objects, 3, after=1))
        changed = reader.changes(2, 3, OWN).drop_columns(["_commit_timestamp"])
        assert rows_of(changed) == [(5, 3, "update_preimage", 3), (5, 4, "update_postimage", 3)]
        versions = reader.changes(1, 3, OWN)["_commit_version"].to_pylist()
        assert versions == [2, 2, 2, 3, 3]

    def test_whole_versions_after_the_channel_do_not_count(
        self, objects: DictObjectStore, operator: KeyedOperator
    ) -> None:
        history = history_of_subtask_1(objects, 2, after=1)
        operator.run_subtask(2, 0, {}, operator.checkpoints.latest_before(2))
        operator.run_epoch(3, {4: 9})
        assert whole_history(objects).versions() == [0, 1, 2, 3]
        assert history.versions() == [0, 1, 2]

    def test_an_epoch_before_all_whole_is_the_first_version(self, objects: DictObjectStore) -> None:
        KeyedOperator(objects).run_subtask(0, 1, {4: 1}, None)
        history = history_of_subtask_1(objects, 0, after=-1)
        assert history.versions() == [0]
        assert rows_of(StateReader(history).changes(None, 0, OWN))[0][:3] == (4, 1, "insert")


class TestBarriersAhead:
    def test_the_attempt_of_the_position_is_taken(
        self, objects: DictObjectStore, operator: KeyedOperator
    ) -> None:
        first = position_of(newest_barrier(objects, 2, 1, 1))
        operator.run_subtask(2, 1, {4: 4}, operator.checkpoints.latest_before(2), attempt=2)
        second = position_of(newest_barrier(objects, 2, 1, 1))
        history = whole_history(objects)
        for position, values in ((first, {4: 3, 5: 3, 7: 1}), (second, {4: 4, 7: 1})):
            ahead = barriers_ahead(history, {1: position}, 1)[1]
            state = StateReader(ChannelHistory(history, ahead)).read(2)
            assert dict(rows_of(state)) == values

    def test_a_channel_whose_barrier_is_gone_is_left_out(
        self, objects: DictObjectStore, operator: KeyedOperator
    ) -> None:
        gone = ChannelPosition(subtask=1, epoch=3, run=1, attempt=1, parallelism=2)
        assert barriers_ahead(whole_history(objects), {1: gone}, 1) == {}

    def test_nothing_is_listed_when_no_channel_is_ahead(
        self, objects: DictObjectStore, operator: KeyedOperator
    ) -> None:
        objects.listings.clear()
        assert barriers_ahead(whole_history(objects), {}, 1) == {}
        assert objects.listings == []


def test_the_barrier_of_a_channel_is_read_once_by_all_parts_of_a_task(
    objects: DictObjectStore, operator: KeyedOperator
) -> None:
    history = whole_history(objects)
    operator.run_subtask(2, 1, {4: 3, 5: 3}, operator.checkpoints.latest_before(2))
    position = ChannelPosition(subtask=1, epoch=2, run=1, attempt=1, parallelism=2)
    ahead = barriers_ahead(history, {1: position}, 1)[1]
    objects.reads.clear()
    for _ in range(5):
        channel = ChannelHistory(history, ahead)
        assert [channel.at(version).info.version for version in (0, 1, 2)] == [0, 1, 2]
    assert len(objects.reads) == len(set(objects.reads)) == 3
