"""A stream of a table begins at the right version, and batches keep the limits."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles
from pyspark.sql.types import LongType, StructType

from checkpoint_store.errors import CorruptObjectError, ObjectMissingError
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.provider.provider_file_names import ProviderFileName
from checkpoint_store.state_reader import open_store
from checkpoint_store.tables.table_layout import version_name
from checkpoint_store.tables.table_store import TableCommit
from datasources.errors import StateReplacedError
from datasources.options.table_options import parse_stream_options
from datasources.reads.asked_columns import AskedColumns, asked_columns
from datasources.streams.lost_changes import ChangesLostError
from datasources.streams.table_stream import TableStreamReader
from spark_state.errors import ConfigurationError
from tests.support.provider.provider_file_bytes import unique
from tests.support.provider.scripted_checkpoint import (
    PARTITIONS,
    commit,
    write_batch,
    write_metadata,
)
from tests.support.provider.scripted_checkpoint import put as write_file
from tests.support.tables.table_rows_of import COLUMNS, METADATA, ScriptedTable, put

NO_COLUMNS = asked_columns("", StructType())


def reader(
    table: Path,
    clock: Callable[[], float] = lambda: 0.0,
    columns: AskedColumns = NO_COLUMNS,
    **options: Any,
) -> TableStreamReader:
    texts = {name: str(value) for name, value in options.items()}
    parsed = parse_stream_options({"path": str(table), **texts})
    return TableStreamReader(parsed, columns, clock)


def write(table: Path, *batches: int) -> None:
    query = ScriptedTable(LocalObjectStore(table))
    for batch in batches:
        query.commit(batch, put(batch, "a", batch))


SNAPSHOT = {"version": -1, "after": "snapshot"}
NOTHING = {"version": -1, "after": "nothing"}


def place(offset: dict[str, Any]) -> dict[str, Any]:
    """Return the position in an offset, without the facts about the state."""
    return {name: offset[name] for name in ("version", "after")}


def after(version: int) -> dict[str, Any]:
    return {"version": version, "after": "version"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, SNAPSHOT),
        ({"startingVersion": "earliest"}, NOTHING),
        ({"startingVersion": "latest"}, after(3)),
        ({"startingVersion": 0}, NOTHING),
        ({"startingVersion": 2}, after(1)),
        ({"startingVersion": 4}, after(3)),
        ({"startingTimestamp": 0}, NOTHING),
        ({"startingTimestamp": 10**15}, after(3)),
    ],
)
def test_a_stream_begins_where_its_options_say(
    tmp_path: Path, options: dict[str, Any], expected: dict[str, Any]
) -> None:
    write(tmp_path, 0, 1, 2, 3)
    assert reader(tmp_path, **options).initialOffset() == expected


def test_a_stream_does_not_begin_after_the_next_version(tmp_path: Path) -> None:
    write(tmp_path, 0, 1, 2, 3)
    with pytest.raises(ConfigurationError, match=r"startingVersion is 5, .* is 3: set it to 4 or"):
        reader(tmp_path, startingVersion=5).initialOffset()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, SNAPSHOT),
        ({"startingVersion": "latest"}, NOTHING),
        ({"startingVersion": 0}, NOTHING),
        ({"startingVersion": 3}, after(2)),
    ],
)
def test_a_table_that_is_not_there_yet_is_waited_for_from_the_same_place(
    tmp_path: Path, options: dict[str, Any], expected: dict[str, Any]
) -> None:
    stream = reader(tmp_path / "later", **options)
    start = stream.initialOffset()
    assert start == expected
    assert stream.latestOffset(start, ReadAllAvailable()) == start
    write(tmp_path / "later", 0, 1, 2, 3, 4)
    assert place(stream.latestOffset(start, ReadAllAvailable())) == after(4)


def checkpoint_of(path: Path, query_id: str, batches: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    checkpoint = LocalObjectStore(path)
    write_metadata(checkpoint, "default", query_id=query_id)
    for batch in range(batches):
        write_batch(checkpoint, batch)


@pytest.mark.parametrize("batches", [1, 4])
def test_a_stream_of_a_checkpoint_stops_at_another_query(tmp_path: Path, batches: int) -> None:
    checkpoint_of(tmp_path / "checkpoint", "first", 2)
    stream = reader(tmp_path / "checkpoint")
    reached = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert place(reached) == after(1)
    checkpoint_of(tmp_path / "checkpoint", "first", 3)
    assert place(
        reader(tmp_path / "checkpoint").latestOffset(reached, ReadAllAvailable())
    ) == after(2)
    checkpoint_of(tmp_path / "checkpoint", "second", batches)
    with pytest.raises(StateReplacedError, match="its queryId is 'second' and was 'first'"):
        stream.latestOffset(reached, ReadAllAvailable())
    with pytest.raises(StateReplacedError, match="its queryId is 'second' and was 'first'"):
        stream.partitions(reached, {**reached, "version": 2})


def test_a_query_that_went_back_is_waited_for(tmp_path: Path) -> None:
    checkpoint_of(tmp_path / "checkpoint", "first", 3)
    stream = reader(tmp_path / "checkpoint")
    reached = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    for batch in (1, 2):
        (tmp_path / "checkpoint" / "commits" / str(batch)).unlink()
    assert stream.latestOffset(reached, ReadAllAvailable()) == reached


def test_a_query_that_went_back_and_ran_the_batch_again_is_another_state(tmp_path: Path) -> None:
    checkpoint_of(tmp_path, "first", 3)
    stream = reader(tmp_path)
    reached = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    checkpoint = LocalObjectStore(tmp_path)
    checkpoint.delete(["commits/2"])
    for partition in range(PARTITIONS):
        name = ProviderFileName(3, 9, unique(33), unique(2))
        write_file(checkpoint, partition, name, [(7, "again")])
    commit(checkpoint, 2)
    write_file(checkpoint, 0, ProviderFileName(4, 9, unique(34), unique(33)), [(8, "later")])
    commit(checkpoint, 3)
    expected = f"its run of batch 2 is '{unique(33)}' and was '{unique(3)}'"
    with pytest.raises(StateReplacedError, match=expected):
        stream.latestOffset(reached, ReadAllAvailable())


@pytest.mark.parametrize("metadata", [None, b"", b"{}"])
def test_checkpoints_need_their_own_description(tmp_path: Path, metadata: bytes | None) -> None:
    checkpoint_of(tmp_path, "first", 1)
    (tmp_path / "metadata").unlink()
    if metadata is not None:
        (tmp_path / "metadata").write_bytes(metadata)
    stream = reader(tmp_path)
    with pytest.raises((CorruptObjectError, ObjectMissingError), match="metadata"):
        stream.latestOffset(stream.initialOffset(), ReadAllAvailable())


def test_versions_before_the_first_asked_for_are_left_out_when_they_come(tmp_path: Path) -> None:
    stream = reader(tmp_path, startingVersion=3)
    start = stream.initialOffset()
    write(tmp_path, 0, 1, 2)
    assert stream.latestOffset(start, ReadAllAvailable()) == start
    write(tmp_path, 3)
    assert place(stream.latestOffset(start, ReadAllAvailable())) == after(3)


def test_a_first_version_whose_state_before_is_gone_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, *range(4))
    for version in (0, 1):
        (tmp_path / "versions" / f"{version:019d}.json").unlink()
    with pytest.raises(ChangesLostError, match="holds versions 2 to 3"):
        reader(tmp_path, startingVersion=2).initialOffset()
    assert reader(tmp_path, startingVersion=3).initialOffset() == after(2)
    lenient = reader(tmp_path, startingVersion=1, failOnDataLoss=False)
    assert lenient.initialOffset() == after(0)


class Watch:
    """A clock that the test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def newest(stream: TableStreamReader, start: dict[str, Any]) -> int:
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end["version"] >= start["version"]
    return int(end["version"])


def test_new_versions_are_looked_for_when_the_poll_interval_is_over(tmp_path: Path) -> None:
    watch = Watch()
    write(tmp_path, 0)
    stream = reader(tmp_path, watch, pollIntervalSeconds=5)
    assert newest(stream, SNAPSHOT) == 0
    write(tmp_path, 1)
    watch.now += 4.9
    assert newest(stream, after(0)) == 0
    assert stream.reportLatestOffset() == after(0)
    watch.now += 0.1
    assert newest(stream, after(0)) == 1
    write(tmp_path, 2)
    # The time counts from the last look, even if the look found nothing.
    watch.now += 4.9
    assert stream.reportLatestOffset() == after(1)
    watch.now += 0.1
    assert stream.reportLatestOffset() == after(2)
    assert newest(stream, after(1)) == 2


def test_an_offset_never_goes_back_when_the_last_look_is_older(tmp_path: Path) -> None:
    write(tmp_path, 0)
    stream = reader(tmp_path, pollIntervalSeconds=5)
    assert newest(stream, SNAPSHOT) == 0
    write(tmp_path, 1, 2)
    assert stream.latestOffset(after(2), ReadAllAvailable()) == after(2)


def test_available_now_looks_at_once_and_reads_all_that_it_saw(tmp_path: Path) -> None:
    write(tmp_path, 0)
    stream = reader(tmp_path, pollIntervalSeconds=3600)
    assert newest(stream, SNAPSHOT) == 0
    write(tmp_path, 1, 2)
    stream.prepareForTriggerAvailableNow()
    write(tmp_path, 3)
    assert newest(stream, after(0)) == 2


def test_an_offset_has_what_is_known_of_the_state_and_tasks_get_it_too(tmp_path: Path) -> None:
    query = ScriptedTable(LocalObjectStore(tmp_path))
    for batch, watermarks_ms in enumerate(({0: 10, 1: 30}, {1: 40})):
        files = (query.write(batch, [put(batch, "a", 1), put(batch + 2, "b", 2)]),)
        query.table.commit(
            TableCommit(
                *("query-a", "run", batch, COLUMNS, files), writers=2, watermarks_ms=watermarks_ms
            )
        )
    stream = reader(tmp_path, numPartitions=2)
    end = stream.latestOffset(NOTHING, ReadAllAvailable())
    facts = {"keys": ["id"], "maxParallelism": 4, "sequenced": False, "ignoresNulls": False}
    committed_ms = end.pop("committed_ms")
    assert committed_ms == open_store(str(tmp_path)).info(1).timestamp_ms
    assert end == {**after(1), "table": facts, "watermarks": {"0": 10, "1": 40}}
    tasks = stream.partitions(NOTHING, end)
    assert [len(task.parts) for task in tasks] == [1, 1]
    assert {group for task in tasks for part in task.parts for group in part.key_groups} == {
        *range(4)
    }
    assert [task.watermark_ms for task in tasks] == [10, 10]
    assert stream.latestOffset(end, ReadAllAvailable()) is end


@pytest.mark.parametrize(
    ("fixed", "told"),
    [
        ({"max_parallelism": 2}, "maxParallelism is 2 and was 4"),
        ({"sequence_by": "at"}, "sequenced is True and was False"),
        ({"ignore_null_updates": True}, "ignoresNulls is True and was False"),
    ],
)
def test_another_table_at_the_url_is_refused_by_driver_and_tasks(
    tmp_path: Path, fixed: dict[str, Any], told: str
) -> None:
    write(tmp_path / "one", 0, 1)
    metadata = replace(METADATA, **fixed)
    other = ScriptedTable(LocalObjectStore(tmp_path / "other"), metadata=metadata)
    for batch in range(3):
        other.commit(batch, put(0, "a", batch))
    stream = reader(tmp_path / "one")
    end = stream.latestOffset(NOTHING, ReadAllAvailable())
    (task, *_) = pickle.loads(pickle.dumps(stream.partitions(NOTHING, end)))
    elsewhere = reader(tmp_path / "other")
    for use in (
        lambda: elsewhere.latestOffset(end, ReadAllAvailable()),
        lambda: elsewhere.partitions(end, after(2)),
        lambda: list(elsewhere.read(task)),
    ):
        with pytest.raises(StateReplacedError, match=told):
            use()


def test_another_table_that_looks_the_same_is_refused(tmp_path: Path) -> None:
    """A query that keeps running while the table is replaced refuses the new table, too."""
    write(tmp_path / "table", 0, 1, 2)
    stream = reader(tmp_path / "table")
    end = stream.latestOffset(NOTHING, ReadAllAvailable())
    stream.partitions(NOTHING, end)
    shutil.rmtree(tmp_path / "table")
    query = ScriptedTable(LocalObjectStore(tmp_path / "table"), now=lambda: 5_000_000)
    for batch in range(5):
        query.commit(batch, put(batch, "a", batch))
    for either in (stream, reader(tmp_path / "table")):
        message = r"commit time of version 2 .* is 5000000002 and was"
        with pytest.raises(StateReplacedError, match=message):
            either.latestOffset(end, ReadAllAvailable())
        with pytest.raises(StateReplacedError, match=message):
            either.partitions(end, after(4))


def test_a_table_that_has_begun_anew_is_told_unless_data_loss_is_accepted(tmp_path: Path) -> None:
    write(tmp_path / "one", 0, 1, 2)
    write(tmp_path / "other", 0)
    end = reader(tmp_path / "one").latestOffset(NOTHING, ReadAllAvailable())
    message = r"2 of .* does not exist; the state ends at version 0: it is another .* read up"
    with pytest.raises(ChangesLostError, match=message):
        reader(tmp_path / "other").latestOffset(end, ReadAllAvailable())
    lenient = reader(tmp_path / "other", failOnDataLoss=False)
    assert lenient.latestOffset(end, ReadAllAvailable()) is end


class TestLostVersions:
    """A table with versions 0 to 5. Each version adds a key; version 2 is lost."""

    def stream(self, table: Path, **options: Any) -> TableStreamReader:
        write(table, *range(6))
        (table / version_name(2)).unlink()
        columns = StructType().add("id", LongType()).add("_commit_version", LongType())
        return reader(table, columns=asked_columns("", columns), **options)

    def rows(self, stream: TableStreamReader, start: dict[str, Any]) -> list[tuple[Any, ...]]:
        end = stream.latestOffset(start, ReadAllAvailable())
        assert end["version"] == 5
        batches = [b for part in stream.partitions(start, end) for b in stream.read(part)]
        return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())

    def test_the_error_says_which_option_passes_over_what_is_lost(self, tmp_path: Path) -> None:
        stream = self.stream(tmp_path)
        with pytest.raises(ChangesLostError) as caught:
            self.rows(stream, after(0))
        for words in ("failOnDataLoss to false", "goes on with all changes that can still be read"):
            assert words in str(caught.value)
        assert (caught.value.version, caught.value.was_read) == (2, False)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)

    def test_a_batch_whose_end_is_gone_by_a_restart_has_what_is_left(self, tmp_path: Path) -> None:
        planned = self.stream(tmp_path, failOnDataLoss=False)
        end = planned.latestOffset(after(0), ReadMaxFiles(1)) | {"version": 3}
        (tmp_path / version_name(3)).unlink()
        rows = [row for part in planned.partitions(after(0), end) for row in planned.read(part)]
        assert [batch["id"].to_pylist() for batch in rows] == [[1]]
        with pytest.raises(ChangesLostError, match=r"version [23] of"):
            reader(tmp_path).partitions(after(0), end)

    def test_a_snapshot_whose_version_is_gone_by_a_restart_is_that_of_the_one_after(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        stream = self.stream(tmp_path, failOnDataLoss=False)
        parts = stream.partitions(SNAPSHOT, after(2))
        rows = [row for part in parts for row in stream.read(part)]
        assert sorted(id for batch in rows for id in batch["id"].to_pylist()) == [0, 1, 2, 3]
        assert (
            "at version 2 is gone; the state at version 3 is read instead, with the changes of "
            "versions 2 to 3 in it" in caplog.text
        )
        for version in (3, 4, 5):
            (tmp_path / version_name(version)).unlink()
        stream.partitions(SNAPSHOT, after(3))
        assert (
            "at version 3 is gone; the state at version 1 is read instead, and the changes after "
            "version 1 up to version 3 are lost" in caplog.text
        )
        with pytest.raises(ChangesLostError, match="version 2 of"):
            reader(tmp_path).partitions(SNAPSHOT, after(2))
        for version in (0, 1):
            (tmp_path / version_name(version)).unlink()
        with pytest.raises(ChangesLostError, match="holds no version"):
            stream.partitions(SNAPSHOT, after(2))

    def test_one_deleted_after_it_was_listed_adds_nothing_to_a_batch(self, tmp_path: Path) -> None:
        write(tmp_path, *range(4))
        options = {"maxFilesPerTrigger": 1, "pollIntervalSeconds": 5}
        stream = reader(tmp_path, failOnDataLoss=False, **options)
        assert stream.reportLatestOffset() == after(3)
        (tmp_path / version_name(2)).unlink()
        assert place(stream.latestOffset(after(1), ReadMaxFiles(1))) == after(3)

    def test_one_that_it_has_read_itself_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ChangesLostError, match=r"version 2 of .* is missing"):
            self.rows(self.stream(tmp_path), after(2))

    def test_a_stream_that_begins_with_one_is_told(self, tmp_path: Path) -> None:
        stream = self.stream(tmp_path, startingVersion=2)
        with pytest.raises(ChangesLostError, match=version_name(2)):
            self.rows(stream, stream.initialOffset())

    def test_a_stream_that_begins_at_its_time_is_told(self, tmp_path: Path) -> None:
        write(tmp_path, *range(6))
        times = {info.version: info.timestamp_ms for info in open_store(str(tmp_path)).versions()}
        (tmp_path / version_name(2)).unlink()
        for milliseconds, expected in ((times[1], after(0)), (times[4], after(3))):
            stream = reader(tmp_path, startingTimestamp=milliseconds)
            assert stream.initialOffset() == expected
        lenient = reader(tmp_path, startingTimestamp=times[1] + 1, failOnDataLoss=False)
        assert lenient.initialOffset() == after(1)
        # The lost version may be the first version after the timestamp.
        with pytest.raises(ChangesLostError, match=version_name(2)):
            reader(tmp_path, startingTimestamp=times[1] + 1).initialOffset()


def test_a_damaged_version_does_not_hide_the_first_one_since_a_time(tmp_path: Path) -> None:
    write(tmp_path, *range(6))
    times = {info.version: info.timestamp_ms for info in open_store(str(tmp_path)).versions()}
    (tmp_path / version_name(2)).write_bytes(b"")
    for version in (0, 1, 3, 4, 5):
        start = reader(tmp_path, startingTimestamp=times[version]).initialOffset()
        assert start == (after(version - 1) if version else NOTHING)
    with pytest.raises(CorruptObjectError, match=version_name(2)):
        reader(tmp_path, startingTimestamp=times[1] + 2).initialOffset()
