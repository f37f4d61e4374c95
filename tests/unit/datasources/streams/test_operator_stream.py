"""A stream of an operator's changes is right with two drivers, restarts and rollbacks."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from checkpoint_store.epochs.completed_checkpoint import CompletedCheckpoint
from checkpoint_store.epochs.published_objects import PublishedObjects
from checkpoint_store.objects.local_object_store import LocalObjectStore
from datasources.errors import EpochsTakenBackError
from datasources.options.table_options import parse_stream_options
from datasources.reads.asked_columns import asked_columns
from datasources.streams.table_stream import TableStreamReader
from tests.support.operators.keyed_operator import KeyedOperator
from tests.support.operators.taken_back import take_back

FEED = (
    StructType()
    .add("key", LongType())
    .add("n", IntegerType())
    .add("_change_type", StringType())
    .add("_commit_version", LongType())
)
MODES = pytest.mark.parametrize("mode", ["exactly_once", "at_least_once"])
ReadChange = tuple[int, int, int]


class ReadStream:
    """A stream that reads the available changes at each call: key, value and epoch of each change.
    `options`: the limits of a call."""

    def __init__(
        self, folder: Path, mode: str = "exactly_once", start: Any = None, **options: str
    ) -> None:
        asked = {"path": str(folder), "startingVersion": "earliest", "preimages": "false"}
        parsed = parse_stream_options({**asked, **options, "checkpointingMode": mode})
        self.reader = TableStreamReader(parsed, asked_columns("", FEED))
        self.offset = self.reader.initialOffset() if start is None else start

    def read(self) -> list[ReadChange]:
        end = self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())
        rows = [
            (key, n, epoch)
            for part in pickle.loads(pickle.dumps(self.reader.partitions(self.offset, end)))
            for batch in self.reader.read(part)
            for key, n, _, epoch in zip(*batch.to_pydict().values(), strict=True)
        ]
        self.offset = end
        return sorted(rows, key=lambda row: (row[2], row[0]))


class Driver:
    """One run of the operator. Like a host, the run goes on from the state in memory."""

    def __init__(self, folder: Path, run_id: str, parallelism: int = 2):
        self.folder, self.store = folder, LocalObjectStore(folder)
        self.operator = KeyedOperator(self.store, run_id, parallelism)

    def taken_back_to(self, epoch: int) -> Driver:
        """Take the query back, so that `epoch` is the next epoch. Return the new driver."""
        take_back(self.store, epoch)
        return Driver(self.folder, "run-b")

    def written(self, epoch: int) -> CompletedCheckpoint:
        """Return the run's own checkpoint of an epoch."""
        published = PublishedObjects(self.store)
        return published.read_manifest(published.manifests(epoch, self.operator.run.number)[0])

    def run(self, epoch: int, n: int, base: CompletedCheckpoint | None) -> CompletedCheckpoint:
        """Put a number at keys 0 and 4 of two different subtasks."""
        for subtask in range(self.operator.parallelism):
            self.run_part(epoch, n, base, subtask)
        return self.complete(epoch)

    def run_part(self, epoch: int, n: int, base: CompletedCheckpoint | None, subtask: int) -> None:
        self.operator.run_subtask(epoch, subtask, {0: n, 4: n}, base)

    def complete(self, epoch: int) -> CompletedCheckpoint:
        operator = self.operator
        operator.checkpoints.complete(epoch, operator.run, operator.parallelism)
        return self.written(epoch)


def both(epoch: int, n: int | None = None) -> list[ReadChange]:
    value = epoch if n is None else n
    return [(0, value, epoch), (4, value, epoch)]


@pytest.fixture
def first(tmp_path: Path) -> Driver:
    """The first run, with epochs 0 to 2 written."""
    driver, base = Driver(tmp_path, "run-a"), None
    for epoch in range(3):
        base = driver.run(epoch, epoch, base)
    return driver


@pytest.fixture
def second(tmp_path: Path, first: Driver) -> Driver:
    """A second run, with nothing written yet."""
    return Driver(tmp_path, "run-b")


@pytest.fixture
def stream(tmp_path: Path, first: Driver) -> ReadStream:
    """A stream that has read epochs 0 to 2."""
    stream = ReadStream(tmp_path)
    stream.read()
    return stream


def test_channels_that_are_ahead_come_after_the_epochs_that_limits_leave_for_later(
    tmp_path: Path, first: Driver
) -> None:
    first.run_part(3, 3, first.written(2), 1)
    stream = ReadStream(tmp_path, "at_least_once", maxVersionsPerTrigger="1")
    assert [stream.read() for _ in range(4)] == [both(0), both(1), both(2), [(4, 3, 3)]]


class TestStrays:
    @MODES
    def test_a_part_of_an_epoch_makes_no_stream_wait(
        self, tmp_path: Path, first: Driver, second: Driver, mode: str
    ) -> None:
        stream = ReadStream(tmp_path, mode)
        assert stream.read() == [*both(0), *both(1), *both(2)]
        base = first.written(2)
        second.run_part(3, 30, base, 1)
        stream.read()
        base = first.run(3, 3, base)
        first.run(4, 4, base)
        assert stream.read() == [*both(3), *both(4)]
        assert ReadStream(tmp_path, mode).read() == [*(each for n in range(5) for each in both(n))]

    @MODES
    def test_an_epoch_that_only_the_stray_has_completed_is_not_handed_out(
        self, tmp_path: Path, first: Driver, second: Driver, mode: str
    ) -> None:
        stream = ReadStream(tmp_path, mode)
        stream.read()
        base = first.written(2)
        second.run(3, 30, base)
        own = first.run(3, 3, base)
        assert stream.read() == []
        first.run(4, 4, own)
        assert stream.read() == [*both(3), *both(4)]

    @MODES
    def test_two_runs_of_an_epoch_that_made_the_same_changes_are_one(
        self, tmp_path: Path, first: Driver, mode: str
    ) -> None:
        stream = ReadStream(tmp_path, mode)
        stream.read()
        base = first.written(2)
        first.run(3, 3, base)
        Driver(tmp_path, "run-b", parallelism=4).run(3, 3, base)
        assert stream.read() == both(3)


class TestEpochsTakenBack:
    def test_a_restart_that_wrote_the_last_epoch_again_is_followed(
        self, stream: ReadStream, first: Driver, second: Driver
    ) -> None:
        base = second.run(2, 2, first.written(1))
        second.run(3, 3, base)
        assert stream.read() == both(3)

    @pytest.mark.parametrize("restarted", [False, True])
    def test_other_changes_in_the_last_epoch_are_an_error(
        self, tmp_path: Path, stream: ReadStream, first: Driver, second: Driver, restarted: bool
    ) -> None:
        if restarted:
            stream = ReadStream(tmp_path, start=stream.offset)
        base = second.run(2, 20, first.written(1))
        assert stream.read() == []
        second.run(3, 3, base)
        with pytest.raises(EpochsTakenBackError, match="handed out epoch 2 as run 1 "):
            stream.read()

    def test_a_query_that_went_further_back_is_an_error_that_names_all_epochs(
        self, stream: ReadStream, first: Driver
    ) -> None:
        first.taken_back_to(1).run(1, 1, first.written(0))
        with pytest.raises(EpochsTakenBackError) as caught:
            stream.read()
        assert (caught.value.first, caught.value.last, caught.value.run) == (1, 2, 1)

    def test_a_stream_that_gave_out_none_of_it_goes_on(
        self, stream: ReadStream, first: Driver
    ) -> None:
        base = first.written(2)
        for epoch in (3, 4, 5):
            base = first.run(epoch, epoch, base)
        back = first.taken_back_to(3)
        back.run(4, 40, back.run(3, 30, first.written(2)))
        assert stream.read() == [*both(3, 30), *both(4, 40)]

    @pytest.mark.parametrize("n", [2, 20])
    def test_a_last_epoch_that_was_taken_back_is_waited_for_and_compared(
        self, stream: ReadStream, first: Driver, n: int
    ) -> None:
        back = first.taken_back_to(2)
        back.run_part(2, n, first.written(1), 0)
        assert stream.read() == []
        back.run_part(2, n, first.written(1), 1)
        back.run(3, 3, back.complete(2))
        if n == 2:
            assert stream.read() == both(3)
        else:
            with pytest.raises(EpochsTakenBackError, match="epoch 2"):
                stream.read()

    def test_a_last_epoch_not_run_again_is_an_error(
        self, stream: ReadStream, first: Driver
    ) -> None:
        first.taken_back_to(2).run(3, 3, first.written(1))
        with pytest.raises(EpochsTakenBackError, match="epoch 2"):
            stream.read()
