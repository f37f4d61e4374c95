"""The provider's stores, informed by the plan, evict the same rows as the operators."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress

from spark_state.spark.provider.provider_class import PROVIDER_KEY
from tests.support.applications.streams import Stream
from tests.support.provider.planned_queries import (
    ON_COWSTATE,
    Build,
    distinct_moments,
    distinct_within,
    groups_with_timeout,
    joined,
    joined_by_moment,
    joined_twice,
    last_plan,
    metrics_of,
    sessions,
    stream_of_lone_keys,
    stream_of_moments,
    windows,
)
from tests.support.provider.provider_jobs import (
    COWSTATE,
    HDFS,
    JOIN_STORES,
    STATE_STORE,
    Options,
    in_order,
)

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("build", "mode"),
    [
        *[(windows, "append"), (windows, "update"), (sessions, "append")],
        *[(distinct_moments, "append"), (distinct_within, "append")],
    ],
)
def test_an_operator_is_given_the_rows_that_it_evicts(
    spark: SparkSession, tmp_path: Path, build: Build, mode: str
) -> None:
    stream = stream_of_moments(spark, tmp_path)
    query = stream.run(build(stream), output_mode=mode)
    evictions = [batch["stateOperators"][0]["numRowsRemoved"] for batch in query.recentProgress]
    assert sum(evictions) > evictions[-1] > 5
    assert metrics_of(last_plan(query), "StateEviction", "numOldRows") == [evictions[-1]]


def test_groups_are_given_when_they_time_out(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, ON_COWSTATE)
    for batch in range(3):
        rows = [(f"{batch}-{number}{'x' * (number % 2)}", 100 * batch) for number in range(20)]
        stream.feed(rows)
    query = stream.run(groups_with_timeout(stream), output_mode="update")
    removed = [batch["stateOperators"][0]["numRowsRemoved"] for batch in query.recentProgress]
    assert removed == [0, 0, 10, 10]
    assert metrics_of(last_plan(query), "StateEviction", "numOldRows") == [10]


def test_deduplication_may_evict_a_part_in_each_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Spark counts the rows of its search. Here the search reads only old rows, so more rows go."""
    factor = {"spark.sql.streaming.statefulOperator.incrementalCleanupFactor": "2"}
    outputs, states = [], []
    for provider in (COWSTATE, HDFS):
        settings = {**ON_COWSTATE, PROVIDER_KEY: provider, **factor}
        stream = Stream(spark, tmp_path / provider, settings)
        stream.feed([(f"key{number}", 0) for number in range(100)])
        for moment in (100, 200, 300):
            stream.feed([(f"key{number}", moment) for number in range(5)])
        query = stream.run(distinct_moments(stream), output_mode="append")
        assert sum(b["stateOperators"][0]["numRowsRemoved"] for b in query.recentProgress) > 0
        outputs.append(in_order(spark.read.parquet(str(stream.folder / "output")).collect()))
        states.append(set(in_order(stream_state(stream).collect())))
    assert outputs[0] == outputs[1]
    assert states[0] <= states[1]


def stream_state(stream: Stream) -> DataFrame:
    return stream.spark.read.format("statestore").load(str(stream.checkpoint))


@pytest.mark.parametrize(
    ("how", "settings"),
    [
        ("full_outer", {}),
        ("left_semi", {}),
        ("inner", {f"{STATE_STORE}.rowChecksum.enabled": "true"}),
        ("inner", {f"{STATE_STORE}.cowstate.backend": "disk"}),
    ],
)
def test_a_join_counts_the_values_that_its_stores_remove(
    spark: SparkSession, tmp_path: Path, how: str, settings: Options
) -> None:
    """Stores remove the values of keys without another value."""
    removed = {}
    for provider in (COWSTATE, HDFS):
        all_settings = {**ON_COWSTATE, PROVIDER_KEY: provider, **settings}
        stream = stream_of_lone_keys(spark, tmp_path / provider, all_settings)
        query = stream.run(joined(stream, how), output_mode="append")
        removed[provider] = [b["stateOperators"][0]["numRowsRemoved"] for b in query.recentProgress]
        if provider == COWSTATE:
            (old_rows,) = metrics_of(last_plan(query), "StateOfJoin", "numOldRows")
    assert removed[COWSTATE] == removed[HDFS]
    sides = 1 if how == "left_semi" else 2
    # Spark 4.2 does not count the rows that an outer join evicts from the sides in its output.
    put_out = 2 if how == "full_outer" else 0
    uncounted = put_out if spark.version.startswith("4.2.") else 0
    assert removed[COWSTATE][-1] == (sides - uncounted) * 400
    # A key counts once.
    assert old_rows == sides * 300


def test_each_of_two_joins_counts_its_own(spark: SparkSession, tmp_path: Path) -> None:
    removed = {}
    for provider in (COWSTATE, HDFS):
        settings = {**ON_COWSTATE, PROVIDER_KEY: provider}
        stream = stream_of_lone_keys(spark, tmp_path / provider, settings)
        query = stream.run(joined_twice(stream), output_mode="append")
        removed[provider] = [
            [operator["numRowsRemoved"] for operator in batch["stateOperators"]]
            for batch in query.recentProgress
        ]
    assert removed[COWSTATE] == removed[HDFS]
    assert all(sum(of_join) > 0 for of_join in zip(*removed[COWSTATE], strict=True))


def test_memory_of_evicted_values_is_freed(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, ON_COWSTATE)
    for batch in range(20):
        stream.feed([(f"{batch}-{number}", 100 * batch) for number in range(2_000)])
    query = stream.run(joined(stream), output_mode="append")
    held = [batch["stateOperators"][0]["memoryUsedBytes"] for batch in query.recentProgress]
    assert max(held[12:]) < 1.5 * max(held[5:10])


@pytest.mark.parametrize(("hint", "is_first"), [("shuffle_hash", True), ("merge", False)])
def test_a_batch_may_be_joined_with_the_state_in_one_task(
    spark: SparkSession, tmp_path: Path, hint: str, is_first: bool
) -> None:
    """Spark's reader of a join's state opens stores of the same names for writing."""
    one_partition = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}
    settings = {**ON_COWSTATE, **one_partition, "spark.sql.autoBroadcastJoinThreshold": "-1"}
    expected = stream_of_lone_keys(spark, tmp_path / "expected", settings)
    progress = expected.run(joined(expected), output_mode="append").recentProgress
    stream = stream_of_lone_keys(spark, tmp_path / "read", settings)

    def sink(batch: DataFrame, number: int) -> None:
        if number == 0:
            batch.collect()
            return
        reader = spark.read.format("statestore").option("joinSide", "left")
        state = reader.load(str(stream.checkpoint)).selectExpr("key.field0 AS key")
        keys = batch.select("key")
        sides = (state.hint(hint), keys) if is_first else (keys, state.hint(hint))
        sides[0].join(sides[1], "key").collect()

    query = stream.run(joined(stream), sink=sink, output_mode="append")
    assert [removed_by(b) for b in query.recentProgress] == [removed_by(b) for b in progress]
    assert join_state_of(stream) == join_state_of(expected)


def removed_by(batch: StreamingQueryProgress) -> int:
    removed: int = batch["stateOperators"][0]["numRowsRemoved"]
    return removed


def test_a_batch_that_failed_after_some_evictions_runs_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One task reads both partitions. The first partition has evicted and committed when the task
    fails."""
    expected = stream_of_lone_keys(spark, tmp_path / "expected")
    progress = expected.run(joined(expected, "full_outer"), output_mode="append").recentProgress
    totals = [batch["stateOperators"][0]["numRowsTotal"] for batch in progress]
    evicting = [
        batch["batchId"]
        for batch, (before, after) in zip(progress, pairwise([0, *totals]), strict=True)
        if batch["numInputRows"] > 0
        and after < before + batch["stateOperators"][0]["numRowsUpdated"]
    ]
    stream = stream_of_lone_keys(spark, tmp_path / "failing")
    in_second = F.pmod(F.hash("key"), F.lit(2)) == 1
    broken = F.when(in_second, F.raise_error(F.lit("on purpose")))

    def fail_in_the_last(batch: DataFrame, number: int) -> None:
        is_last = number == evicting[-1]
        (batch.withColumn("broken", broken).coalesce(1) if is_last else batch).collect()

    with pytest.raises(StreamingQueryException, match="on purpose"):
        stream.run(joined(stream, "full_outer"), sink=fail_in_the_last, output_mode="append")
    last = evicting[-1] + 1
    written = [
        bool(list((stream.checkpoint / f"state/0/{partition}").glob(f"*/{last:019d}-*")))
        for partition in (0, 1)
    ]
    assert written == [True, False]
    stream.run(joined(stream, "full_outer"), output_mode="append")
    assert join_state_of(stream) == join_state_of(expected)


def join_state_of(stream: Stream) -> list[list[str]]:
    reader = stream.spark.read.format("statestore")
    states = (reader.options(**store).load(str(stream.checkpoint)) for store in JOIN_STORES)
    return [in_order(state.collect()) for state in states]


def test_a_join_by_event_time_is_given_the_keys_that_are_old(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = stream_of_moments(spark, tmp_path)
    query = stream.run(joined_by_moment(stream), output_mode="append")
    assert query.lastProgress["stateOperators"][0]["numRowsRemoved"] == 2 * 400
    old_keys = 2 * len({(f"key{n % 40}", n % 7) for n in range(400)})
    assert metrics_of(last_plan(query), "StateOfJoin", "numOldRows") == [old_keys]


def test_a_task_that_reads_several_partitions_evicts_from_each(
    spark: SparkSession, tmp_path: Path
) -> None:
    states = []
    for name, tasks in (("one", 1), ("two", 2)):
        stream = stream_of_lone_keys(spark, tmp_path / name)
        stream.run(
            joined(stream, "full_outer"),
            sink=lambda batch, _, tasks=tasks: batch.coalesce(tasks).collect(),
            output_mode="append",
        )
        reader = spark.read.format("statestore").option("joinSide", "left")
        states.append(sorted(reader.load(str(stream.checkpoint)).collect()))
    assert states[0] == states[1]
    assert len({row["partition_id"] for row in states[0]}) == 2


def test_a_task_that_also_reads_the_state_gets_all_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The reader asks a store of the same name for all rows, after the join has asked."""
    stream = stream_of_moments(spark, tmp_path)
    rows: list[tuple[int, int]] = []

    def sink(batch: DataFrame, number: int) -> None:
        keys = batch.select("key")
        if number == 0:
            keys.collect()
            return
        reader = spark.read.format("statestore").option("joinSide", "left")
        state = reader.load(str(stream.checkpoint)).selectExpr("key.field0 AS key")
        in_one_task = keys.union(state).coalesce(1).collect()
        rows.append((len(in_one_task), keys.count() + state.count()))

    stream.run(joined(stream, "full_outer"), sink=sink, output_mode="append")
    assert all(together == apart for together, apart in rows)
    assert max(together for together, _ in rows) > 400
