"""spark.readStream of a table gives the snapshot, then the changes of each version, once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.state_reader import open_store
from checkpoint_store.tables.table_retention import TableRetention
from checkpoint_store.tables.table_store import TableStore
from spark_state.spark.provider.change_feed_streams import let_streams_read_changes
from tests.support.tables.table_jobs import (
    EVENT_SCHEMA,
    FEED_FIELDS,
    Changes,
    Upserts,
    Values,
    applied,
    in_order,
    run_to_the_end,
    version_files,
    write,
)
from tests.support.tables.table_rows_of import ScriptedTable, gone, put, schema_json

pytestmark = pytest.mark.spark
Expected = list[list[tuple[Values, str, int]]]
COLUMNS = schema_json(id="long", value="long")

# The versions in order: rows (id, value); a row without value deletes its key.
VERSIONS = [[(1, 10), (2, 20)], [(2, 21), (3, 30)], [(1, None)], [(4, 40)]]
CHANGES = [
    [((1, 10), "insert", 0), ((2, 20), "insert", 0)],
    [
        ((2, 20), "update_preimage", 1),
        ((2, 21), "update_postimage", 1),
        ((3, 30), "insert", 1),
    ],
    [((1, 10), "delete", 2)],
    [((4, 40), "insert", 3)],
]


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with the four versions; tests only read the table."""
    url = str(tmp_path_factory.mktemp("tables") / "table")
    for rows in VERSIONS:
        frame = spark.createDataFrame(rows, "id bigint, value bigint").coalesce(1)
        write(frame, url, keys="id", deleteWhen="value is null")
    return url


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "table")


@pytest.fixture
def changes_of(spark: SparkSession, tmp_path: Path) -> Callable[[str], Changes]:
    return lambda url: Changes(spark, url, tmp_path / "changes-checkpoint")


def upsert(url: str, *rows: tuple[int, int | None]) -> None:
    """Write a version like a batch job, but without Spark, because only the streams are tested."""
    job = ScriptedTable(open_object_store(url), str(uuid4()), is_query=False, now=time.time)
    changes = [gone(id) if value is None else put(id, value) for id, value in rows]
    job.publish(0, [job.write(0, changes, COLUMNS)], COLUMNS)


def shown(batches: list[list[Row]]) -> Expected:
    """The batches without the times of changes, each in order."""
    return [in_order((tuple(row)[:-3], *tuple(row)[-3:-1]) for row in rows) for rows in batches]


def expected(*batches: list[tuple[Values, str, int]]) -> Expected:
    return [in_order(rows) for rows in batches]


class TestWhereItStarts:
    def test_the_snapshot_comes_first_as_inserts_and_then_each_change(
        self, url: str, changes_of: Callable[[str], Changes]
    ) -> None:
        changes = changes_of(url)
        for rows in VERSIONS[:3]:
            upsert(url, *rows)
        snapshot = [((2, 21), "insert", 2), ((3, 30), "insert", 2)]
        assert shown(changes.run()) == expected(snapshot)
        assert changes.run() == []
        upsert(url, (2, None), (5, 50))
        upsert(url, (5, 51))
        later = [
            ((2, 21), "delete", 3),
            ((5, 50), "insert", 3),
            ((5, 50), "update_preimage", 4),
            ((5, 51), "update_postimage", 4),
        ]
        assert shown(changes.run()) == expected(later)
        times = {v.version: v.timestamp_ms for v in open_store(url).versions()}
        for row in changes.rows():
            assert row["_commit_timestamp"].timestamp() * 1000 == times[row["_commit_version"]]


class TestHowFarItGoes:
    @pytest.mark.parametrize(
        ("limits", "batches"),
        [
            ({"maxVersionsPerTrigger": 3}, [[0, 1, 2], [3]]),
            ({"maxBytesPerTrigger": 1}, [[0], [1], [2], [3]]),
            ({"maxFilesPerTrigger": 2}, [[0, 1], [2, 3]]),
            ({"maxBytesPerTrigger": "1g", "maxVersionsPerTrigger": 2}, [[0, 1], [2, 3]]),
        ],
    )
    def test_limits_cut_changes_into_batches_of_whole_versions(
        self,
        table: str,
        changes_of: Callable[[str], Changes],
        limits: dict[str, Any],
        batches: list[list[int]],
    ) -> None:
        delivered = changes_of(table).run(startingVersion=0, **limits)
        wanted = [[row for version in versions for row in CHANGES[version]] for versions in batches]
        assert shown(delivered) == expected(*wanted)

    def test_available_now_stops_at_what_was_there_when_it_started(
        self, spark: SparkSession, url: str, tmp_path: Path
    ) -> None:
        upsert(url, (1, 10))
        upsert(url, (2, 20))
        changes = Changes(spark, url, tmp_path / "changes-checkpoint")
        seen: list[int] = []

        def write_another(batch: Any, _: int) -> None:
            seen.extend(row["_commit_version"] for row in batch.collect())
            upsert(url, (len(seen) + 10, 1))

        frame = changes.frame(startingVersion=0, maxVersionsPerTrigger=1)
        writer = frame.writeStream.foreachBatch(write_another).trigger(availableNow=True)
        run_to_the_end(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start())
        assert seen == [0, 1]
        assert [info.version for info in open_store(url).versions()] == [0, 1, 2, 3]


class TestRestarts:
    def test_a_query_that_is_stopped_anywhere_has_each_change_once(
        self, upserts: Upserts, changes_of: Callable[[str], Changes]
    ) -> None:
        chance = random.Random(6)
        changes = changes_of(upserts.table)
        for turn in range(3):
            for batch in range(3):
                ids = chance.sample(range(30), 12)
                upserts.feed(*((i, f"key{turn}", batch) for i in ids))
            upserts.run()
            changes.run(maxVersionsPerTrigger=1 + turn)
        versions = [{row["_commit_version"] for row in rows} for rows in changes.batches]
        assert versions == [{2}, {3, 4}, {5}, {6, 7, 8}]
        assert applied(changes.rows()) == upserts.rows()

    def test_a_batch_that_spark_repeats_has_the_same_rows(
        self, url: str, changes_of: Callable[[str], Changes]
    ) -> None:
        changes = changes_of(url)
        for rows in VERSIONS[:2]:
            upsert(url, *rows)
        changes.run()
        upsert(url, *VERSIONS[2])
        (before,) = changes.run()
        upsert(url, *VERSIONS[3])
        for file in (changes.checkpoint / "commits").glob("*1*"):
            file.unlink()
        assert shown(changes.run()) == expected(shown([before])[0], CHANGES[3])


class TestDataLoss:
    def test_versions_that_are_gone_are_an_error_that_names_the_oldest(
        self, spark: SparkSession, url: str, changes_of: Callable[[str], Changes]
    ) -> None:
        changes = changes_of(url)
        upsert(url, (1, 10))
        changes.run()
        upsert(url, (1, 11), (2, 20))
        for number in range(12):
            upsert(url, (2, number))
        objects = open_object_store(url)
        TableRetention(objects, TableStore(objects)).retain(2)
        oldest = open_store(url).versions()[0].version
        assert oldest > 0
        with pytest.raises(PySparkException, match=rf"version 0 of .* holds versions {oldest} to"):
            changes.run()
        with pytest.raises(PySparkException, match=rf"version 1 of .* holds versions {oldest} to"):
            Changes(spark, url, Path(f"{url}-new")).run(startingVersion=2)
        (rest,) = changes.run(failOnDataLoss="false")
        assert {row["_commit_version"] for row in rest} == set(range(oldest + 1, 14))
        upsert(url, (1, None))
        assert shown(changes.run()) == [[((1, 11), "delete", 14)]]
        snapshot = Changes(spark, url, Path(f"{url}-snapshot")).run()
        assert shown(snapshot) == [[((2, 11), "insert", 14)]]


class TestColumns:
    def test_a_new_column_is_left_out_until_the_query_starts_anew(
        self, spark: SparkSession, url: str, changes_of: Callable[[str], Changes]
    ) -> None:
        changes = changes_of(url)
        write(spark.createDataFrame([(1, 10)], "id bigint, value bigint"), url, keys="id")
        frame = changes.frame(maxVersionsPerTrigger=1, startingVersion=0)
        wide = spark.createDataFrame(
            [(1, 10, "new"), (2, 20, "x")], "id bigint, value bigint, s string"
        )
        write(wide, url, mergeSchema="true")
        names: list[list[str]] = []
        writer = frame.writeStream.foreachBatch(lambda batch, _: names.append(batch.columns))
        writer = writer.option("checkpointLocation", str(changes.checkpoint))
        run_to_the_end(writer.trigger(availableNow=True).start())
        narrow = ["id", "value", "_change_type", "_commit_version", "_commit_timestamp"]
        assert names == [narrow, narrow]
        write(spark.createDataFrame([(3, 30, "y")], wide.schema), url)
        assert shown(changes.run()) == [[((3, 30, "y"), "insert", 2)]]

    def test_a_schema_of_ones_own_takes_some_columns(
        self, table: str, changes_of: Callable[[str], Changes]
    ) -> None:
        schema = "_change_type string NOT NULL, value bigint NOT NULL"
        delivered = changes_of(table).run(schema, startingVersion=3)
        assert [[tuple(row) for row in rows] for rows in delivered] == [[("insert", 40)]]


class TestOptions:
    def test_a_stream_that_cannot_tell_changes_apart_is_refused(
        self, spark: SparkSession, table: str, tmp_path: Path
    ) -> None:
        reader = spark.readStream.format("cowstate").option("readChangeFeed", "false")
        with pytest.raises(PySparkException, match=r'set option\("readChangeFeed", "true"\)'):
            started(reader, table, tmp_path)

    def test_a_session_that_is_configured_needs_no_option(
        self, spark: SparkSession, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(DataStreamReader, "format", DataStreamReader.format)
        let_streams_read_changes()
        let_streams_read_changes()
        frame = spark.readStream.format("cowstate").load(table)
        assert frame.columns[-3:] == ["_change_type", "_commit_version", "_commit_timestamp"]
        assert spark.readStream.format("rate").load().columns == ["timestamp", "value"]


def test_a_schema_of_ones_own_may_name_the_watermark_of_the_writers(
    spark: SparkSession, tmp_path: Path
) -> None:
    """All tasks of the batch see the watermarks of all writers, and take the least."""
    url = str(tmp_path / "table")
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 4)
    rows = rows.option("startTimestamp", 0).option("numPartitions", 2).load()
    timed = rows.selectExpr("value as id", "timestamp_seconds(value * 10) as moment")
    writer = timed.withWatermark("moment", "5 seconds").writeStream.format("cowstate")
    writer = writer.option("checkpointLocation", str(tmp_path / "query")).option("keys", "id")
    query = writer.start(url)
    while not version_files(url):
        time.sleep(0.1)
    query.stop()
    columns = "id bigint, moment timestamp" + FEED_FIELDS + ", _commit_watermark timestamp"
    changes = Changes(spark, url, tmp_path / "checkpoint")
    (first, *_) = changes.run(columns, startingVersion="earliest", maxVersionsPerTrigger=1)
    assert sorted(row["id"] for row in first) == [0, 1, 2, 3]
    (least,) = {row["_commit_watermark"].timestamp() for row in first}
    # The tasks had two rows each: 0 and 20, 10 and 30.
    assert least in (5.0, 15.0)


def test_streams_read_while_another_writes(
    spark: SparkSession, upserts: Upserts, tmp_path: Path
) -> None:
    chance = random.Random(7)
    schema = EVENT_SCHEMA + FEED_FIELDS
    for batch in range(8):
        upserts.feed(*((i, f"key{batch}", batch) for i in chance.sample(range(20), 9)))
    # The last batch begins with the state of any version, depending on the moment of its look.
    starts = [{"startingVersion": "earliest"}, {"startingVersion": "earliest"}, {}]
    readers = [Changes(spark, upserts.table, tmp_path / f"reader{n}") for n in range(len(starts))]
    queries = [
        reader.frame(schema, maxVersionsPerTrigger=1 + number, **starts[number])
        .writeStream.foreachBatch(reader.keep)
        .option("checkpointLocation", str(reader.checkpoint))
        .trigger(processingTime="100 milliseconds")
        .start()
        for number, reader in enumerate(readers)
    ]
    try:
        upserts.run()
        for query in queries:
            query.processAllAvailable()
    finally:
        for query in queries:
            query.stop()
    for reader in readers[:2]:
        assert len(reader.batches) > 1
    for reader in readers:
        assert applied(reader.rows()) == upserts.rows()


def started(reader: DataStreamReader, table: str, folder: Path) -> None:
    writer = reader.load(table).writeStream.format("noop").trigger(availableNow=True)
    run_to_the_end(writer.option("checkpointLocation", str(folder / "checkpoint")).start())
