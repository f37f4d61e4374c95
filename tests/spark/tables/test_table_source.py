"""spark.read gives the right versions, times, change feeds, columns, filters and partitions of
tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from checkpoint_store.state_reader import open_store
from tests.support.applications.streams import Stream, random_rows, totals_of
from tests.support.provider.provider_jobs import configured
from tests.support.stores.moto_s3 import moto_s3
from tests.support.tables.table_jobs import (
    Changes,
    Upserts,
    applied,
    assert_rows,
    in_order,
    read,
    rows_of,
    write,
)

pytestmark = pytest.mark.spark
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
FEED = ["_change_type", "_commit_version", "_commit_timestamp"]

# The versions in order: rows (id, v, s); a row without v deletes its key.
VERSIONS = [
    [(1, 10, "a"), (2, 20, "b"), (3, 30, "c")],
    [(2, 21, "b"), (4, 40, "d")],
    [(1, None, None), (3, 30, "c")],
    [(5, 50, "e"), (2, None, None)],
]
STATES = [
    [(1, 10, "a"), (2, 20, "b"), (3, 30, "c")],
    [(1, 10, "a"), (2, 21, "b"), (3, 30, "c"), (4, 40, "d")],
    [(2, 21, "b"), (3, 30, "c"), (4, 40, "d")],
    [(3, 30, "c"), (4, 40, "d"), (5, 50, "e")],
]
CHANGES = [
    [(1, 10, "a", "insert"), (2, 20, "b", "insert"), (3, 30, "c", "insert")],
    [(2, 20, "b", "update_preimage"), (2, 21, "b", "update_postimage"), (4, 40, "d", "insert")],
    [(1, 10, "a", "delete")],
    [(2, 21, "b", "delete"), (5, 50, "e", "insert")],
]


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with the four versions; tests only read the table."""
    url = str(tmp_path_factory.mktemp("tables") / "table")
    for rows in VERSIONS:
        frame = spark.createDataFrame(rows, "id bigint, v bigint, s string").coalesce(1)
        write(frame, url, keys="id", deleteWhen="v is null")
    return url


@pytest.fixture(scope="module")
def numbers(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of 500 rows, key (id, name)."""
    url = str(tmp_path_factory.mktemp("tables") / "numbers")
    frame = spark.range(500).selectExpr("id", "concat('n', id % 10) as name", "id * id as square")
    write(frame, url, keys="id,name")
    return url


@pytest.fixture(params=["true", "false"])
def pushdown(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[bool]:
    with configured(spark, {PUSHDOWN: request.param}):
        yield request.param == "true"


def times_of(table: str) -> list[int]:
    return [info.timestamp_ms for info in open_store(table).versions()]


def scanned(frame: DataFrame) -> str:
    """The columns that the only scan of a query gives."""
    plan: Any = frame._jdf.queryExecution().executedPlan()
    return str(plan.collectLeaves().head().scan().readSchema().simpleString())


def feed_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The changes with the number of their version, without its time."""
    return in_order(frame.drop("_commit_timestamp").collect())


def changes_of(versions: range) -> list[tuple[Any, ...]]:
    return in_order((*row, version) for version in versions for row in CHANGES[version])


class TestVersions:
    def test_each_version_is_what_it_was(self, spark: SparkSession, table: str) -> None:
        assert_rows(read(spark, table), STATES[-1])
        assert [rows_of(spark, table, versionAsOf=n) for n in range(4)] == STATES
        assert_rows(read(spark, table, batchId=1), STATES[1])

    def test_a_time_names_the_version_that_was_the_newest_then(
        self, spark: SparkSession, table: str
    ) -> None:
        times = times_of(table)
        at = datetime.fromtimestamp(times[1] / 1000, UTC).isoformat()
        assert_rows(read(spark, table, timestampAsOf=at), STATES[1])
        assert_rows(read(spark, table, timestampAsOf=times[2] - 1), STATES[1])
        assert_rows(read(spark, table, timestampAsOf=times[2]), STATES[2])


class TestChangeFeeds:
    def test_changes_between_versions_are_what_each_did_to_a_key(
        self, spark: SparkSession, table: str
    ) -> None:
        frame = read(spark, table, readChangeFeed="true", startingVersion=0)
        assert frame.columns == ["id", "v", "s", *FEED]
        assert feed_of(frame) == changes_of(range(4))
        assert applied(frame.collect()) == STATES[-1]
        middle = read(spark, table, readChangeFeed="true", startingVersion=1, endingVersion=2)
        assert feed_of(middle) == changes_of(range(1, 3))

    def test_without_preimages_every_put_is_a_postimage_and_a_delete_has_its_key_alone(
        self, spark: SparkSession, table: str
    ) -> None:
        feed = {"readChangeFeed": "true", "startingVersion": 1, "preimages": "false"}
        assert feed_of(read(spark, table, **feed)) == in_order(
            [
                (2, 21, "b", "update_postimage", 1),
                (4, 40, "d", "update_postimage", 1),
                (1, None, None, "delete", 2),
                (3, 30, "c", "update_postimage", 2),
                (2, None, None, "delete", 3),
                (5, 50, "e", "update_postimage", 3),
            ]
        )

    def test_changes_between_times_are_those_of_the_versions_between(
        self, spark: SparkSession, table: str
    ) -> None:
        times = times_of(table)
        frame = read(
            spark,
            table,
            readChangeFeed="true",
            startingTimestamp=times[0] + 1,
            endingTimestamp=times[2],
        )
        assert feed_of(frame) == changes_of(range(1, 3))
        commit_times = {
            (row[1], row[0].timestamp()) for row in frame.select(*FEED[:0:-1]).collect()
        }
        assert commit_times == {(1, times[1] / 1000), (2, times[2] / 1000)}

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({}, r"readChangeFeed needs the first version of the feed"),
            ({"startingVersion": 4}, r"would begin with version 4, after its end, version 3"),
        ],
    )
    def test_feeds_that_cannot_be_are_refused(
        self, spark: SparkSession, table: str, options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(PySparkException, match=message):
            read(spark, table, **{"readChangeFeed": "true", **options}).collect()


class TestColumns:
    def test_columns_are_read_in_the_order_in_which_they_are_named(
        self, spark: SparkSession, table: str
    ) -> None:
        frame = read(spark, table, columns="S, id")
        assert frame.columns == ["s", "id"]
        assert_rows(frame, [("c", 3), ("d", 4), ("e", 5)])
        assert_rows(read(spark, table, columns="v"), [(30,), (40,), (50,)])

    def test_a_schema_of_ones_own_takes_some_columns(self, spark: SparkSession, table: str) -> None:
        reader = spark.read.format("cowstate")
        assert_rows(reader.schema("v bigint").load(table), [(30,), (40,), (50,)])
        feed = spark.read.format("cowstate").schema("_commit_version bigint, id bigint")
        feed = feed.option("readChangeFeed", "true").option("startingVersion", 3)
        assert_rows(feed.load(table), [(3, 2), (3, 5)])

    def test_columns_that_are_never_null_in_a_schema_of_ones_own_are_read(
        self, spark: SparkSession, table: str
    ) -> None:
        inner = "inner struct<a: int NOT NULL> NOT NULL, tags array<int> NOT NULL"
        made = spark.sql("select 1L id, named_struct('a', 2) inner, array(3) tags")
        url = f"{table}-never-null"
        write(made, url, keys="id")
        assert not any(field.nullable for field in made.schema)
        for schema in (made.schema, f"id bigint NOT NULL, {inner}"):
            frame = spark.read.format("cowstate").schema(schema).load(url)
            assert_df_equality(frame, made, ignore_nullable=True)

    def test_counting_needs_no_columns(self, spark: SparkSession, numbers: str) -> None:
        assert read(spark, numbers).count() == 500
        assert read(spark, numbers).where("square > 100").groupBy().count().first() == (489,)

    def test_a_query_reads_the_columns_that_it_uses(self, spark: SparkSession, table: str) -> None:
        """Each side of a union of one frame has its own columns."""
        frame = read(spark, table)
        values, texts = frame.select("v"), frame.where("id > 3").select("s", "id").select("s")
        assert scanned(values) == "struct<v:bigint>"
        assert scanned(texts) == "struct<id:bigint,s:string>"
        assert_rows(values.union(texts.selectExpr("length(s)")), [(30,), (40,), (50,), (1,), (1,)])
        feed = read(spark, table, readChangeFeed="true", startingVersion=0)
        counts = feed.where("_change_type != 'update_preimage'").groupBy("_change_type").count()
        assert_rows(counts, [("insert", 5), ("update_postimage", 1), ("delete", 2)])


class TestFilters:
    def test_a_lookup_of_one_key_plans_one_partition(
        self, spark: SparkSession, numbers: str, pushdown: bool
    ) -> None:
        for condition, partitions in (
            ("id = 7 and name = 'n7'", 1 if pushdown else 8),
            ("id = 7", 8),
            ("id in (7, 8) and name in ('n7', 'n8')", 4 if pushdown else 8),
        ):
            frame = read(spark, numbers, numPartitions=8, pushFilters=pushdown)
            assert frame.where(condition).rdd.getNumPartitions() == partitions

    def test_a_frame_that_is_used_again_has_all_rows_whatever_the_session_pushes(
        self, spark: SparkSession, numbers: str, pushdown: bool
    ) -> None:
        """Otherwise Spark would keep the filters pushed for the first use."""
        frame = read(spark, numbers)
        third, fourth = (frame.where(f"id = {id} and name = 'n{id}'") for id in (3, 4))
        assert third.count() == 1
        assert frame.count() == 500
        assert_rows(third.union(fourth), [(3, "n3", 9), (4, "n4", 16)])
        frame.createOrReplaceTempView("numbers_again")
        counted = spark.sql(
            "select (select count(*) from numbers_again where id = 3 and name = 'n3'), "
            "(select count(*) from numbers_again)"
        )
        assert counted.first() == (1, 500)

    def test_a_range_of_keys_leaves_files_out(self, spark: SparkSession, tmp_path: Path) -> None:
        """An unread file need not even exist. A date also matches the day before."""
        url = str(tmp_path / "table")
        for day in (1, 2, 3):
            days = spark.range(5).selectExpr(f"date'2026-01-0{day}' as day", "id")
            write(days.coalesce(1), url, keys="day,id")
        version = json.loads(min((Path(url) / "versions").iterdir()).read_text())
        (first,) = (handle["name"] for handle in version["body"]["changes"])
        (Path(url) / first).unlink()
        with configured(spark, {PUSHDOWN: "true"}):
            late = read(spark, url, pushFilters=True).where("day >= date'2026-01-03'")
            assert late.count() == 5
            with pytest.raises(PySparkException, match=re.escape(first)):
                read(spark, url, pushFilters=True).where("day >= date'2026-01-02'").count()


class TestPartitions:
    def test_partitions_have_each_row_once(self, spark: SparkSession, numbers: str) -> None:
        for asked, planned in ((1, 1), (3, 3), (1000, 128)):
            frame = read(spark, numbers, numPartitions=asked)
            assert frame.rdd.getNumPartitions() == planned
        rows = read(spark, numbers, numPartitions=5).selectExpr("id", "spark_partition_id() as p")
        collected = rows.collect()
        assert sorted(row.id for row in collected) == list(range(500))
        assert {row.p for row in collected} == set(range(5))

    def test_partitions_of_a_feed_have_each_change_once(
        self, spark: SparkSession, table: str
    ) -> None:
        feed = {"readChangeFeed": "true", "startingVersion": 0, "numPartitions": 4}
        assert feed_of(read(spark, table, **feed)) == changes_of(range(4))


class TestOperators:
    def test_the_state_of_a_python_operator_is_a_table_with_a_version_for_each_epoch(
        self, spark: SparkSession, stream: Stream, tmp_path: Path
    ) -> None:
        for epoch in range(3):
            stream.feed(random_rows(epoch, count=100, keys=20))
        stream.run()
        store = str(stream.store())
        expected = in_order((k, *total) for k, total in totals_of(stream.fed).items())
        assert_rows(read(spark, store), expected)
        assert_rows(read(spark, store, stateVarName="totals"), expected)
        first = in_order((k, *total) for k, total in totals_of(stream.fed[:100]).items())
        assert_rows(read(spark, store, batchId=0), first)
        feed = read(spark, store, readChangeFeed="true", startingVersion=0).collect()
        assert applied(feed) == expected
        with pytest.raises(PySparkException, match=r"no state 'total'; its states are totals"):
            read(spark, store, stateVarName="total")
        changes = Changes(spark, store, tmp_path / "changes-checkpoint")
        changes.run(stateVarName="totals", startingVersion=0, maxVersionsPerTrigger=1)
        assert [len({row["_commit_version"] for row in rows}) for rows in changes.batches] == [
            1
        ] * 3
        stream.feed(random_rows(9, count=30, keys=25))
        stream.run()
        changes.run(stateVarName="totals", startingVersion=0, maxVersionsPerTrigger=1)
        assert applied(changes.rows()) == rows_of(spark, store)


def test_a_table_on_s3_is_written_read_and_streamed(spark: SparkSession, tmp_path: Path) -> None:
    with moto_s3() as server:
        url = f"{server.new_bucket()}/table"
        storage = {"storageOptions": json.dumps(server.storage_options)}
        upserts = Upserts(spark, tmp_path, options={"keys": "id", **storage}, table=url)
        upserts.feed((1, "a", 1), (2, "b", 2))
        upserts.feed((1, "a", 3), (3, "c", 3))
        upserts.run()
        assert_rows(read(spark, url, **storage), [(1, "a", 3), (2, "b", 2), (3, "c", 3)])
        assert_rows(read(spark, url, versionAsOf=0, **storage), [(1, "a", 1), (2, "b", 2)])
        changes = Changes(spark, url, tmp_path / "changes-checkpoint")
        changes.run(**storage, startingVersion=0)
        assert applied(changes.rows()) == rows_of(spark, url, **storage)
