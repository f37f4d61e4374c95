"""The provider changes only the intended parts of Spark's plan of a batch."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import IllegalArgumentException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark_state.spark.provider.provider_class import PROVIDER_KEY
from tests.support.applications.provider_application import totals
from tests.support.applications.streams import Stream, random_rows, totals_of
from tests.support.provider.planned_queries import (
    BATCHES,
    ON_COWSTATE,
    Build,
    distinct,
    distinct_moments,
    joined,
    joined_by_key,
    joined_by_moment,
    last_plan,
    lists,
    metrics_of,
    outer_joined,
    overall,
    stream_of_moments,
    texts,
    windows,
)
from tests.support.provider.provider_jobs import (
    HDFS,
    STATE_STORE,
    THROUGH_MANAGER,
    Options,
    configured,
    in_order,
)
from tests.support.provider.provider_jvm import ProviderJvm, Script

pytestmark = pytest.mark.spark
CHANGE_PLANS = f"{STATE_STORE}.cowstate.changePlans"
PARTITIONS = "spark.sql.shuffle.partitions"
Sink = Callable[[DataFrame, int], None]


def stream_of(spark: SparkSession, folder: Path, settings: Options = ON_COWSTATE) -> Stream:
    """A stream with all its input."""
    stream = Stream(spark, folder, settings)
    for number in range(BATCHES):
        stream.feed(random_rows(number, count=100, keys=30))
    return stream


def operators(query: StreamingQuery) -> list[str]:
    """The operators around the stateful operators in the plan of the last batch, from the top."""
    lines = last_plan(query).toString().splitlines()
    names = [match[0] for line in lines if (match := re.search(r"[A-Z]\w+", line))]
    return [name for name in names if name not in ("Project", "Exchange", "Scan", "FileScan")]


def plan_of(stream: Stream, build: Build) -> list[str]:
    return operators(stream.run(build(stream)))


def changed(spark: SparkSession, plan: Any) -> Any:
    """The plan after the provider's rule, for the settings of the session."""
    jvm: Any = spark._jvm
    rule = jvm.org.apache.spark.sql.execution.streaming.state.cowstate.plans.StatefulPlanRule
    return rule.postColumnarTransitions().apply(plan)


HASHED = ["HashAggregate", "StateStoreSave", "HashAggregate", "StateStoreRestore"]
IN_ORDER = [
    "Unordered",
    "SortAggregate",
    "WholeBatch",
    "StateStoreSave",
    "SortAggregate",
    "StateStoreRestore",
    "StatePrefetch",
]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (totals, [*IN_ORDER, "HashAggregate"]),
        (lists, ["ObjectHashAggregate", *IN_ORDER[3:], "ObjectHashAggregate"]),
        # Rows above the last aggregate are in the order of keys, as Spark promises there.
        (texts, ["SortAggregate", "Sort", *IN_ORDER[3:], "SortAggregate", "Sort"]),
        (overall, [*HASHED, "HashAggregate"]),
        (distinct, ["StreamingDeduplicate", "StatePrefetch"]),
        (windows, [*IN_ORDER[:4], "StateEviction", *IN_ORDER[4:]]),
        (distinct_moments, ["StreamingDeduplicate", "StateEviction", "StatePrefetch"]),
        (
            joined,
            ["StateOfJoin", "StreamingSymmetricHashJoin", "Filter"],
        ),
        (joined_by_moment, ["StateOfJoin", "StreamingSymmetricHashJoin"]),
        (outer_joined, ["StateOfJoin", "StreamingSymmetricHashJoin"]),
    ],
)
def test_the_plan_around_a_store_is_changed(
    spark: SparkSession, tmp_path: Path, build: Build, expected: list[str]
) -> None:
    stream = stream_of(spark, tmp_path)
    mode = "append" if build is outer_joined else "update"
    query = stream.run(build(stream), output_mode=mode)
    assert operators(query)[: len(expected)] == expected
    with configured(spark, ON_COWSTATE):
        assert changed(spark, last_plan(query)) == last_plan(query), "it is changed once"


@pytest.mark.parametrize(
    "settings",
    [{**ON_COWSTATE, CHANGE_PLANS: "False"}, {**THROUGH_MANAGER, PROVIDER_KEY: HDFS}],
    ids=["turned off", "another provider"],
)
def test_plans_stay_as_they_are(spark: SparkSession, tmp_path: Path, settings: Options) -> None:
    plan = plan_of(stream_of(spark, tmp_path), totals)
    assert plan[: len(IN_ORDER)] == IN_ORDER
    others = plan_of(stream_of(spark, tmp_path / "others", settings), totals)
    assert others[: len(HASHED) + 1] == [*HASHED, "HashAggregate"]


def test_a_bad_value_of_the_setting_fails_the_query(spark: SparkSession, tmp_path: Path) -> None:
    stream = stream_of(spark, tmp_path, {**ON_COWSTATE, CHANGE_PLANS: "no"})
    with pytest.raises(
        IllegalArgumentException, match=f"{CHANGE_PLANS} is 'no'; allowed are true and false"
    ):
        stream.run(totals(stream))


def test_the_state_of_rows_is_prefetched(spark: SparkSession, tmp_path: Path) -> None:
    """Rows longer than the read-ahead are prefetched, too. A few keys are not in their own line of
    the table, and prefetching does not look in other lines."""
    stream = Stream(spark, tmp_path, ON_COWSTATE)
    chance = random.Random(7)
    lengths = [chance.choice((1, 1, 10, 5000, 40_000)) for _ in range(200)]
    keys = [f"{number}{'x' * length}" for number, length in enumerate(lengths)]
    for _ in range(2):
        stream.feed([(chance.choice(keys), 1) for _ in range(300)])
    first, last = ({key for key, _ in rows} for rows in (stream.fed[:300], stream.fed[300:]))
    query = stream.run(totals(stream), output_mode="complete")
    rows = spark.read.parquet(str(stream.folder / "output/epoch=1")).collect()
    assert {row["key"]: (row["rows"], row["total"]) for row in rows} == totals_of(stream.fed)
    (prefetched,) = metrics_of(last_plan(query), "StatePrefetch", "numPrefetchedRows")
    assert 0.8 * len(first & last) < prefetched <= len(first & last)


def test_the_state_of_both_inputs_of_a_join_is_prefetched(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A few keys are not in their own line of the table."""
    stream = Stream(spark, tmp_path, ON_COWSTATE)
    for batch in range(2):
        stream.feed([(f"key{n + 20 * batch}", 1) for n in range(100)])
    query = stream.run(joined_by_key(stream), output_mode="append")
    plan = last_plan(query)
    (left,) = metrics_of(plan, "StateOfJoin", "numPrefetchedRowsOfLeft")
    (right,) = metrics_of(plan, "StateOfJoin", "numPrefetchedRowsOfRight")
    # A row of the left side finds the count of its own side, and a count and a value of the right
    # side, if its key is among 80 keys. Then the left side has all keys.
    assert 0.8 * 3 * 80 < left <= 3 * 80
    assert 0.8 * (80 + 2 * 100) < right <= 80 + 2 * 100


def first_node(plan: Any, name: str) -> Any:
    while plan.nodeName() != name:
        plan = plan.children().head()
    return plan


def test_a_join_that_another_extension_wrapped_runs_as_spark_planned_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = Stream(spark, tmp_path, ON_COWSTATE)
    stream.feed([("key", 1)])
    plan = last_plan(stream.run(joined_by_key(stream), output_mode="append"))
    state = first_node(plan, "StateOfJoin")
    ours: Any = spark._jvm.org.apache.spark.sql.execution.streaming.state.cowstate.plans
    join = state.child()
    wrapped = ours.StateOfJoinExec(
        state.left(), state.right(), state.evictions(), ours.UnorderedExec(join)
    )
    assert wrapped.execute().equals(join.execute())
    assert not state.execute().equals(join.execute())


def test_plans_change_until_a_class_is_another_than_in_the_versions_of_the_jar(
    provider_jvm: ProviderJvm,
) -> None:
    script = Script()
    script.add("4.3.0 links fails links", "changed unchanged unchanged")
    script.add("4.2.9 links", "changed")
    script.add("4.3.0-vendor-1 links", "changed")
    script.add("4.30.0 links links", "unchanged unchanged")
    script.add("5.4.3 links", "unchanged")
    script.run_on(provider_jvm.new("InternalsScript"))


def first_row(batch: DataFrame, _: int) -> None:
    assert len(batch.limit(1).collect()) == 1


def any_row(batch: DataFrame, _: int) -> None:
    assert not batch.isEmpty()


def first_row_of_python(batch: DataFrame, _: int) -> None:
    assert len(batch.mapInArrow(lambda parts: parts, batch.schema).limit(1).collect()) == 1


INTERPRETED = {"spark.sql.codegen.aggregate.sortAggregate.withKeys.enabled": "false"}
FORMATS = {
    f"{STATE_STORE}.checkpointFormatVersion": "2",
    "spark.sql.streaming.aggregation.stateFormatVersion": "1",
}


@pytest.mark.parametrize(
    ("sink", "mode", "settings"),
    [
        (any_row, "update", {}),
        (first_row, "complete", {}),
        (first_row_of_python, "complete", {}),
        (first_row_of_python, "update", INTERPRETED),
        (first_row, "update", FORMATS),
    ],
)
def test_a_sink_that_takes_a_few_rows_leaves_a_whole_batch_behind(
    spark: SparkSession, tmp_path: Path, sink: Sink, mode: str, settings: Options
) -> None:
    stream = stream_of_many_keys(spark, tmp_path, settings)
    stream.run(totals(stream), sink=sink, output_mode=mode)
    assert state_of(stream) == totals_of(stream.fed)


def stream_of_many_keys(spark: SparkSession, folder: Path, settings: Options) -> Stream:
    """A stream whose state is in one partition."""
    stream = Stream(spark, folder, {**ON_COWSTATE, PARTITIONS: "1", **settings})
    for number in range(BATCHES):
        stream.feed(random_rows(number, count=3000, keys=1000))
    return stream


def test_windows_that_end_are_removed_though_the_sink_takes_a_few_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """In append mode the store emits rows during their removal, and commits after the last row."""
    stream = Stream(spark, tmp_path, {**ON_COWSTATE, PARTITIONS: "1"})
    for batch in range(BATCHES):
        stream.feed([(f"key{number}", 100 * batch) for number in range(500)])
    moments = stream.source().withColumn("moment", F.timestamp_seconds("value"))
    windows = moments.withWatermark("moment", "1 second").groupBy(
        F.window("moment", "10 seconds"), "key"
    )

    def sink(batch: DataFrame, _: int) -> None:
        batch.limit(1).collect()

    stream.run(windows.agg(F.count("*").alias("rows")), sink=sink, output_mode="append")
    state = spark.read.format("statestore").load(str(stream.checkpoint))
    starts = state.selectExpr("unix_timestamp(key.window.start) AS start").distinct().collect()
    assert [row["start"] for row in starts] == [100 * (BATCHES - 1)]
    assert state.count() == 500


def windows_of_windows(stream: Stream) -> DataFrame:
    """Two aggregations, each with a store."""
    longer = F.window(F.window_time("window"), "50 seconds")
    return windows(stream).groupBy(longer).agg(F.sum("count").alias("rows"))


def test_both_of_two_aggregations_commit_though_the_sink_takes_a_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    states, commits = [], []
    for limit in (1, 1000):
        one_partition = {**ON_COWSTATE, PARTITIONS: "1"}
        stream = stream_of_moments(spark, tmp_path / str(limit), one_partition)
        stream.run(
            windows_of_windows(stream),
            sink=lambda batch, _, limit=limit: batch.limit(limit).collect(),
            output_mode="append",
        )
        readers = (spark.read.format("statestore").option("operatorId", n) for n in (0, 1))
        states.append([in_order(r.load(str(stream.checkpoint)).collect()) for r in readers])
        stores = (stream.checkpoint / f"state/{number}/0" for number in (0, 1))
        commits.append([len(list(store.glob("*.changelog.arrow"))) for store in stores])
    assert states[0] == states[1]
    assert commits[0] == commits[1]
    assert min(commits[0]) >= BATCHES


def test_no_order_of_a_batch_is_promised(spark: SparkSession, tmp_path: Path) -> None:
    """Spark plans a function's use of a batch by the order that the batch's own plan promises."""
    orders, joined = [], []
    other = spark.createDataFrame([(f"key{number}",) for number in range(30)], "key string")

    def sink(batch: DataFrame, _: int) -> None:
        sorted_keys = batch.select("key").sortWithinPartitions("key").rdd.glom().collect()
        orders.append([[row["key"] for row in part] for part in sorted_keys])
        joined.append(batch.join(other.hint("merge"), "key").count() == batch.count())

    settings = {**ON_COWSTATE, "spark.sql.autoBroadcastJoinThreshold": "-1"}
    stream = Stream(spark, tmp_path, settings)
    for number in range(BATCHES):
        stream.feed(random_rows(number, count=300, keys=30))
    query = stream.run(totals(stream), sink=sink)
    assert last_plan(query).outputOrdering().isEmpty()
    assert joined == [True] * BATCHES
    assert [part for batch in orders for part in batch] == [
        sorted(part) for batch in orders for part in batch
    ]
    assert max(len(part) for batch in orders for part in batch) > 5


def one_task(batch: DataFrame, _: int) -> None:
    batch.coalesce(1).collect()


def test_partitions_that_one_task_reads_are_all_committed(
    spark: SparkSession, tmp_path: Path
) -> None:
    for build, name in ((totals, "totals"), (distinct, "distinct")):
        stream = stream_of(spark, tmp_path / name)
        stream.run(build(stream), sink=one_task)
        state = spark.read.format("statestore").load(str(stream.checkpoint))
        assert state.select("partition_id").distinct().count() == 2
        assert state.count() == len(totals_of(stream.fed))


def joined_with_itself(batch: DataFrame, _: int) -> None:
    rows = batch.alias("left").join(batch.alias("right"), "key").collect()
    assert len({row["key"] for row in rows}) == len(rows)


def test_a_batch_of_objects_is_joined_with_itself(spark: SparkSession, tmp_path: Path) -> None:
    """Both sides are inputs of one task, and write to one store in turn."""
    settings = {**ON_COWSTATE, "spark.sql.autoBroadcastJoinThreshold": "-1"}
    stream = stream_of(
        spark, tmp_path, {**settings, f"{STATE_STORE}.cowstate.lockTimeoutSeconds": "5"}
    )
    stream.run(lists(stream), sink=joined_with_itself)
    assert stream.committed() == BATCHES


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_task_that_reads_a_batch_twice_at_once_needs_a_kept_one(
    spark: SparkSession, tmp_path: Path, is_kept: bool
) -> None:
    """The task opens the same stores twice, and would wait for itself."""
    stream = Stream(spark, tmp_path, ON_COWSTATE)
    stream.feed(random_rows(1, count=100, keys=30))

    def sink(batch: DataFrame, _: int) -> None:
        if is_kept:
            batch.persist()
        assert batch.rdd.zip(batch.rdd).filter(lambda pair: pair[0] != pair[1]).count() == 0
        batch.unpersist()

    if is_kept:
        stream.run(joined_by_key(stream), sink=sink, output_mode="append")
        assert stream.committed() == 1
        return
    with pytest.raises(StreamingQueryException, match="is used by this task already"):
        stream.run(joined_by_key(stream), sink=sink, output_mode="append")


def state_of(stream: Stream) -> dict[str, tuple[int, int]]:
    rows = stream.spark.read.format("statestore").load(str(stream.checkpoint)).collect()
    return {row["key"]["key"]: (row["value"]["count"], row["value"]["sum"]) for row in rows}


def test_a_task_that_fails_after_some_rows_commits_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Rows leave before the store commits, and the batch runs again from the earlier state."""
    stream = stream_of_many_keys(spark, tmp_path, {})
    broken = F.when(F.col("key") == stream.fed[-1][0], F.raise_error(F.lit("on purpose")))

    def fail_in_the_last(batch: DataFrame, number: int) -> None:
        is_last = number == BATCHES - 1
        (batch.withColumn("broken", broken) if is_last else batch).collect()

    with pytest.raises(StreamingQueryException, match="on purpose"):
        stream.run(totals(stream), sink=fail_in_the_last)
    assert written_versions(stream) == [*range(1, BATCHES)]
    stream.run(totals(stream))
    assert written_versions(stream) == [*range(1, BATCHES + 1)]
    assert state_of(stream) == totals_of(stream.fed)


def written_versions(stream: Stream) -> list[int]:
    changelogs = (stream.checkpoint / "state/0/0").glob("*.changelog.arrow")
    return sorted(int(path.name.split("-")[0]) for path in changelogs)


@pytest.mark.parametrize("asks_first", [True, False])
@pytest.mark.parametrize(
    ("batch", "asked", "fails", "outcome"),
    [
        ("1 2 3 4", 0, False, "; ended"),
        ("1 2 3 4", 1, False, "1 2 3 4; ended"),
        ("1 2 3 4", 4, False, "1 2 3 4; ended"),
        ("1 2 3 4", 2, True, "1 2; ended"),
        ("1 2 x 4", 3, False, "1 2; a row of the batch could not be read"),
        ("1 2 x 4", 3, True, "1 2; ended"),
        ("1 2 x 4", 1, False, "1 2; a row is lost"),
    ],
)
def test_rows_are_read_to_the_end_unless_one_was_lost(
    provider_jvm: ProviderJvm, batch: str, asked: int, fails: bool, outcome: str, asks_first: bool
) -> None:
    """The reader that met the error of a row may keep the error, if the sink has enough rows."""
    ended = provider_jvm.new("WholeBatchScript", batch).run(asked, asks_first, fails)
    assert ended.startswith(outcome)
    assert "there is more" not in ended
