"""A batch of a stream reads the right changes, and planning the batch takes few requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles
from pyspark.sql.types import LongType, StringType, StructType

from checkpoint_store.epochs.operator_layout import EpochDirectory
from checkpoint_store.epochs.published_objects import PublishedObjects
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.state_reader import StateReader
from checkpoint_store.tables.table_layout import version_name
from datasources.options.table_options import parse_stream_options
from datasources.reads.asked_columns import asked_columns
from datasources.streams.channel_positions import Positions, position_of
from datasources.streams.lost_changes import ChangesLostError
from datasources.streams.stream_batch import StreamBatch
from datasources.streams.stream_offset import offset_at
from datasources.streams.table_stream import TableStreamReader
from tests.support.operators.keyed_operator import KEYED, KeyedOperator
from tests.support.stores.fake_object_store import DictObjectStore
from tests.support.tables.table_rows_of import ScriptedTable, gone, put, reader_of, state_of

OF_EPOCH_2 = EpochDirectory(2, 1)


def batch_of(objects: DictObjectStore, start: Any, end: Any, **options: str) -> StreamBatch:
    parsed = parse_stream_options({"path": "/store", **options})
    return StreamBatch(parsed, OperatorHistory(objects, KEYED, None), start, end)


def positions_at(objects: DictObjectStore, epoch: int, run: int = 1) -> Positions:
    """Return the positions of an epoch's barriers."""
    names = PublishedObjects(objects).barriers(EpochDirectory(epoch, run))
    return {name.subtask: position_of(name) for name in names}


class TestRequests:
    """Eight channels, some of them ahead of epoch 1."""

    def listings(self, channels_ahead: int, are_gone: bool = False) -> list[str]:
        objects = DictObjectStore()
        operator = KeyedOperator(objects, parallelism=8)
        for epoch in range(2):
            operator.run_epoch(epoch, dict.fromkeys(range(8), epoch))
        base = operator.checkpoints.latest_before(2)
        for subtask in range(channels_ahead):
            operator.run_subtask(2, subtask, {subtask: 2}, base)
        end = offset_at(1, "version", positions_at(objects, 2))
        if are_gone:
            objects.delete([str(name) for name in PublishedObjects(objects).barriers(OF_EPOCH_2)])
        batch = batch_of(objects, offset_at(0), end, failOnDataLoss="false")
        objects.listings.clear()
        parts = batch.parts()
        assert sum(bool(part.ahead) for part in parts) == (0 if are_gone else channels_ahead)
        return objects.listings

    def test_more_channels_ahead_need_no_more_listings(self) -> None:
        of_one = self.listings(1)
        assert self.listings(7) == of_one
        assert of_one.count("manifests") == 1

    def test_more_barriers_that_are_gone_need_no_more_listings(self) -> None:
        assert self.listings(7, are_gone=True) == self.listings(1, are_gone=True)

    def test_channels_that_were_ahead_need_no_more_listings(self) -> None:
        """Each channel has its own stretch, from the epoch that the channel had reached."""
        objects = DictObjectStore()
        operator = KeyedOperator(objects, parallelism=8)
        for epoch in range(4):
            operator.run_epoch(epoch, dict.fromkeys(range(8), epoch))
        start = offset_at(0, "version", positions_at(objects, 1))
        batch = batch_of(objects, start, offset_at(3))
        assert len(batch.stretches({})) == 8
        objects.listings.clear()
        batch.parts()
        assert objects.listings.count("manifests") == 1


def planned(objects: DictObjectStore) -> tuple[KeyedOperator, Any]:
    """Write epochs 0 and 1, and the barrier of subtask 1 in epoch 2. Return the operator, and the
    offset up to the barrier."""
    operator = KeyedOperator(objects)
    for epoch in range(2):
        operator.run_epoch(epoch, {0: epoch, 4: epoch})
    operator.run_subtask(2, 1, {4: 2}, operator.checkpoints.latest_before(2))
    return operator, offset_at(1, "version", positions_at(objects, 2))


@dataclass
class ForgetfulStore(DictObjectStore):
    """A store that deletes a doomed object just before the object is read."""

    doomed: set[str] = field(default_factory=set)

    def get(self, name: str) -> bytes:
        if name in self.doomed:
            self.delete([name])
        return super().get(name)


class TestVersionsThatAreDeletedMeanwhile:
    """A table has versions 0 to 4. Version 2 is deleted between the listing and the read."""

    def batch(self, **options: str) -> StreamBatch:
        objects = ForgetfulStore()
        query = ScriptedTable(objects)
        for number in range(5):
            query.commit(number, put(number, "a", number))
        objects.doomed.add(version_name(2))
        parsed = parse_stream_options({"path": "/table", **options})
        return StreamBatch(parsed, reader_of(objects)._history, offset_at(0), offset_at(4))

    def test_their_changes_are_passed_over(self, caplog: pytest.LogCaptureFixture) -> None:
        parts = self.batch(failOnDataLoss="false").parts()
        assert [(part.start, part.end) for part in parts] == [(0, 1), (3, 4)]
        assert "the changes after version 1 up to version 3, because version 2 is" in caplog.text

    def test_the_error_is_that_of_lost_changes(self) -> None:
        with pytest.raises(ChangesLostError, match=r"version 2 of .* is missing; .* 0 to 4"):
            self.batch().parts()

    def test_deleted_barriers_are_gaps_of_channels(self, caplog: pytest.LogCaptureFixture) -> None:
        objects = ForgetfulStore()
        _, end = planned(objects)
        objects.doomed.update(map(str, PublishedObjects(objects).barriers(OF_EPOCH_2)))
        parts = batch_of(objects, offset_at(0), end, failOnDataLoss="false").parts()
        assert {(part.start, part.end) for part in parts} == {(0, 1)}
        assert "after version 1 up to version 2, because version 2 is gone" in caplog.text


class TestBarriersThatAreGone:
    """Epochs 0 and 1 are whole. A batch is planned up to the barrier of subtask 1 in epoch 2. When
    Spark asks for the batch's parts after a restart, the barrier is gone."""

    def lose_barrier(self, objects: DictObjectStore) -> None:
        names = PublishedObjects(objects).barriers(OF_EPOCH_2)
        objects.delete([str(name) for name in names if name.subtask == 1])

    def changes(
        self, objects: DictObjectStore, start: Any, end: Any, **options: str
    ) -> list[tuple[int, int, int]]:
        """Return key, value and epoch of each change. Check that no part reads a channel that is
        ahead."""
        batch = batch_of(objects, start, end, preimages="false", **options)
        rows: list[tuple[int, int, int]] = []
        for part in batch.parts():
            assert part.ahead == {}
            read = StateReader(batch.history).changes(
                part.start, part.end, part.key_groups, preimages=False
            )
            names = ("key", "n", "_commit_version")
            rows += zip(*(read[name].to_pylist() for name in names), strict=True)
        return sorted(rows)

    @pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
    def test_the_whole_epoch_has_the_changes_and_each_comes_once(
        self, fail_on_data_loss: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        operator, end = planned(objects := DictObjectStore())
        operator.run_subtask(2, 0, {0: 2}, operator.checkpoints.latest_before(2))
        operator.checkpoints.complete(2, operator.run, 2)
        self.lose_barrier(objects)
        options = {"failOnDataLoss": fail_on_data_loss}
        assert self.changes(objects, offset_at(1), end, **options) == [(4, 2, 2)]
        assert self.changes(objects, end, offset_at(2), **options) == [(0, 2, 2)]
        assert "the barrier of subtask 1 in epoch 2 is gone; its changes are read" in caplog.text

    @pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
    def test_changes_of_an_epoch_that_was_run_again_come_later(
        self, fail_on_data_loss: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        _, end = planned(objects := DictObjectStore())
        self.lose_barrier(objects)
        again = KeyedOperator(objects, "run-b")
        again.run_subtask(2, 0, {0: 3}, again.checkpoints.latest_before(2))
        options = {"failOnDataLoss": fail_on_data_loss}
        assert self.changes(objects, offset_at(1), end, **options) == []
        again.run_subtask(2, 1, {4: 3}, again.checkpoints.latest_before(2))
        again.checkpoints.complete(2, again.run, 2)
        assert self.changes(objects, offset_at(1), end, **options) == []
        assert self.changes(objects, end, offset_at(2), **options) == [(0, 3, 2), (4, 3, 2)]
        assert caplog.text.count("subtask 1 in epoch 2 is gone; the epoch was run again") == 2

    def test_the_error_names_the_channel_of_an_epoch_that_is_not_whole(self) -> None:
        _, end = planned(objects := DictObjectStore())
        self.lose_barrier(objects)
        with pytest.raises(ChangesLostError) as caught:
            batch_of(objects, offset_at(1), end).parts()
        message = str(caught.value)
        assert "version 2 of dict://store is missing; it holds versions 0 to 1" in message
        assert "Restore the barrier of subtask 1 in epoch 2 (run 1, attempt 1)" in message
        assert "retained" not in message

    def test_what_is_passed_over_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        _, end = planned(objects := DictObjectStore())
        self.lose_barrier(objects)
        assert self.changes(objects, offset_at(1), end, failOnDataLoss="false") == []
        assert "subtask 1 in epoch 2 is gone; its changes are passed over" in caplog.text


FEED = (
    StructType()
    .add("id", LongType())
    .add("name", StringType())
    .add("_change_type", StringType())
    .add("_commit_version", LongType())
)


@pytest.mark.parametrize("preimages", ["true", "false"])
@pytest.mark.parametrize("lost", [{5}, {5, 6}, {4, 5}, {0, 1, 2, 3, 4, 5}])
@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxFiles(1)], ids=["all", "one"])
def test_a_stream_arrives_at_the_newest_state_beside_the_version_of_its_first_one(
    tmp_path: Path, preimages: str, lost: set[int], limit: ReadLimit
) -> None:
    """Each version changes a new key and the key 100, and deletes an earlier key."""
    store = LocalObjectStore(tmp_path)
    query = ScriptedTable(store)
    for number in range(9):
        rows = [put(number, f"own {number}", number), put(100, f"all {number}", number)]
        query.commit(number, *rows, *([gone(number - 2)] if number > 1 else []))
    newest = {key: values[0] for key, values in state_of(store).items()}
    store.delete([version_name(number) for number in lost])
    options = {"failOnDataLoss": "false", "preimages": preimages, "maxFilesPerTrigger": "1"}
    parsed = parse_stream_options({"path": str(tmp_path), **options})
    stream = TableStreamReader(parsed, asked_columns("", FEED))
    start, end = stream.initialOffset(), offset_at(5)
    sink: dict[int, str] = {}
    first: dict[int, str] = {}
    while start != end:
        for part in stream.partitions(start, end):
            for batch in stream.read(part):
                for id, name, change, version in zip(*batch.to_pydict().values(), strict=True):
                    if change == "delete":
                        sink.pop(id, None)
                    elif change != "update_preimage":
                        sink[id] = name
                    if first and version == min(set(range(5, 9)) - lost):
                        # A row that comes again is a row of the first batch.
                        assert preimages == "false"
                        assert change == "delete" if id not in first else first[id] == name
        first = first or dict(sink)
        start, end = end, stream.latestOffset(end, limit)
    assert sink == newest
