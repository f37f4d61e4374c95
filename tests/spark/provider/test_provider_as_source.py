"""The checkpoint of a query on the provider can be read as a table and as a stream of changes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_state import live_view
from tests.support.provider.provider_inputs import EventShape, write_batches
from tests.support.provider.provider_jobs import COWSTATE, Job, ProviderRun
from tests.support.tables.table_jobs import Changes

pytestmark = pytest.mark.spark

SHAPE = EventShape(rows=80, keys=12)
BATCHES = 3


def by_window(events: DataFrame, _: DataFrame) -> DataFrame:
    marked = events.withWatermark("moment", "1 minute")
    counted = marked.groupBy(F.window("moment", "1 minute"), "key")
    return counted.agg(F.count("*").alias("events"), F.sum("amount").alias("key_amount"))


def joined_then_counted(left: DataFrame, right: DataFrame) -> DataFrame:
    slot = F.window("moment", "30 seconds").alias("slot")
    lefts, rights = (
        events.withWatermark("moment", "1 minute").select("key", slot) for events in (left, right)
    )
    return lefts.join(rights, ["key", "slot"]).groupBy(F.window("slot", "1 minute")).count()


@pytest.fixture(scope="module")
def windows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ProviderRun:
    """A query that ran BATCHES batches and then a batch without data; tests only read its
    checkpoint."""
    return finished(spark, tmp_path_factory.mktemp("windows"), Job(by_window))


@pytest.fixture(scope="module")
def join(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ProviderRun:
    """A query like `windows`, with a join and an aggregation after the join."""
    return finished(spark, tmp_path_factory.mktemp("join"), Job(joined_then_counted))


def finished(spark: SparkSession, folder: Path, job: Job) -> ProviderRun:
    run = ProviderRun(spark, job, COWSTATE, folder / "run")
    left = write_batches(folder / "left", 1, BATCHES, SHAPE)
    run.run(left, write_batches(folder / "right", 2, BATCHES, SHAPE))
    return run


def read(run: ProviderRun, **options: Any) -> DataFrame:
    texts = {name: str(value) for name, value in options.items()}
    return run.spark.read.format("cowstate").options(**texts).load(str(run.checkpoint))


def statestore(run: ProviderRun, **options: Any) -> DataFrame:
    """The state as Spark reads it, with a column for each field."""
    state = run.read_state({name: str(value) for name, value in options.items()})
    return state.select("key.*", "value.*")


def assert_same_rows(left: DataFrame, right: DataFrame) -> None:
    assert left.columns == right.columns
    ignored = {"ignore_row_order": True, "ignore_nullable": True, "ignore_metadata": True}
    assert_df_equality(left, right, **ignored)


def test_the_newest_state_is_a_table(windows: ProviderRun) -> None:
    state = read(windows)
    assert state.columns == ["window", "key", "count", "sum"]
    assert_same_rows(state, statestore(windows))
    assert state.count() > 0


def test_a_version_is_a_batch(windows: ProviderRun) -> None:
    for batch in (0, 2):
        state = read(windows, versionAsOf=batch)
        assert_same_rows(state, statestore(windows, batchId=batch))


def test_filters_on_the_key_leave_its_rows(windows: ProviderRun) -> None:
    key = statestore(windows).where("key IS NOT NULL").first()["key"]
    for options in ({"pushFilters": True, "numPartitions": 1}, {}):
        state = read(windows, **options).where(F.col("key") == key)
        assert_same_rows(state, statestore(windows).where(F.col("key") == key))


def test_the_change_feed_leads_from_one_batch_to_another(windows: ProviderRun) -> None:
    feed = read(windows, readChangeFeed=True, startingVersion=1, endingVersion=BATCHES)
    inserts, deletes = (
        feed.where(F.col("_change_type").isin(*kinds)).select("window", "key", "count", "sum")
        for kinds in (("insert", "update_postimage"), ("delete", "update_preimage"))
    )
    assert feed.where("_change_type = 'delete'").count() > 0
    assert {row["_commit_version"] for row in feed.select("_commit_version").collect()} == {1, 2, 3}
    before, after = statestore(windows, batchId=0), statestore(windows, batchId=BATCHES)
    assert_same_rows(before.unionAll(inserts).exceptAll(deletes), after)


def test_the_operators_and_sides_of_a_join_are_chosen(join: ProviderRun) -> None:
    for side in ("left", "right"):
        rows = read(join, operatorId=1, joinSide=side)
        named = read(join, operatorId=1, storeName=f"{side}-keyWithIndexToValue")
        assert_same_rows(rows, named)
        expected = statestore(join, operatorId=1, joinSide=side)
        assert rows.count() == expected.count() > 0
        # Spark's join calls the columns of its keys field0 and field1.
        assert rows.columns == ["field0", "field1", "index", "key", "slot", "matched"]
        assert_same_rows(rows.drop("index", "matched"), expected)
    assert_same_rows(read(join, operatorId=0), statestore(join, operatorId=0))


def test_a_stream_has_the_state_and_then_what_each_batch_changes(
    windows: ProviderRun, spark: SparkSession, tmp_path: Path
) -> None:
    whole, growing = windows.checkpoint, tmp_path / "checkpoint"
    shutil.copytree(whole, growing)
    for batch in range(2, BATCHES + 1):
        (growing / "commits" / str(batch)).unlink()
    changes = Changes(spark, str(growing), tmp_path / "follower")

    def follow() -> list[DataFrame]:
        return [spark.createDataFrame(rows, changes.frame().schema) for rows in changes.run()]

    (snapshot,) = follow()
    assert {row[0] for row in snapshot.select("_change_type").collect()} == {"insert"}
    assert_same_rows(
        snapshot.select("window", "key", "count", "sum"), statestore(windows, batchId=1)
    )
    assert follow() == []
    for batch in range(2, BATCHES + 1):
        shutil.copy2(whole / "commits" / str(batch), growing / "commits" / str(batch))
    (later,) = follow()
    expected = read(windows, readChangeFeed=True, startingVersion=2, endingVersion=BATCHES)
    assert_same_rows(later.drop("_commit_timestamp"), expected.drop("_commit_timestamp"))


def test_a_live_view_follows_a_query(windows: ProviderRun) -> None:
    with live_view(str(windows.checkpoint)) as view:
        assert view.version == windows.batches[-1]
        rows = [row.asDict(recursive=True) for row in statestore(windows).collect()]
        assert len(view) == len(rows)
        for row in rows:
            values = {"count": row["count"], "sum": row["sum"]}
            utc = {side: _utc(moment) for side, moment in row["window"].items()}
            assert view.get({"window": utc, "key": row["key"]}) == values
            assert view.get((utc, row["key"])) == values
        assert view.snapshot().to_arrow().num_rows == len(rows)


def _utc(moment: Any) -> Any:
    return moment.astimezone()
