"""Spark's formats `statestore` and `state-metadata` read the states of cowstate operators."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_state import ConfigurationError
from tests.spark.input.test_time_modes import TimedStream
from tests.support.applications import streams
from tests.support.applications.existing_jobs import by_rows, last_seen
from tests.support.applications.streams import Stream
from tests.support.provider.provider_jobs import ROCKSDB, configured

pytestmark = pytest.mark.spark
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"

READS: list[dict[str, str]] = [
    {"stateVarName": "total"},
    {"stateVarName": "total", "batchId": "0"},
    {"stateVarName": "last"},
    {"stateVarName": "last", "flattenCollectionTypes": "false"},
    {"stateVarName": "kinds"},
    {"stateVarName": "kinds", "flattenCollectionTypes": "false"},
]


@dataclass
class Checkpoints:
    """The checkpoints of the same jobs on the same input, on Spark and on cowstate."""

    spark: SparkSession
    on_spark: Path
    on_cowstate: Path
    timed_on_spark: Path
    timed_on_cowstate: Path


def sums(spark: SparkSession, folder: Path) -> Path:
    stream = Stream(spark, folder)
    for rows in ([("a", 1), ("b", 2), ("a", 3)], [("b", 5), ("c", 7)]):
        stream.feed(rows)
        stream.run(by_rows(stream.source()))
    return stream.checkpoint


def with_timers(spark: SparkSession, folder: Path) -> Path:
    stream = TimedStream(spark, folder)
    stream.feed_all([[("a", 1_000), ("b", 15_000)]])
    stream.run(last_seen(stream.watermarked()))
    return stream.checkpoint


@pytest.fixture(scope="module")
def checkpoints(spark: SparkSession, tmp_path_factory: Any) -> Iterator[Checkpoints]:
    root = tmp_path_factory.mktemp("state-reads")
    with configured(spark, {PROVIDER: ROCKSDB, CHANGELOG: "true"}):
        on_spark = sums(spark, root / "spark"), with_timers(spark, root / "timed-spark")
        with streams.enabled(spark):
            ours = sums(spark, root / "ours"), with_timers(spark, root / "timed-ours")
            yield Checkpoints(spark, on_spark[0], ours[0], on_spark[1], ours[1])


def read(checkpoints: Checkpoints, at: Path, options: dict[str, str]) -> DataFrame:
    return checkpoints.spark.read.format("statestore").options(**options).load(str(at))


def all_but_partitions(df: DataFrame) -> list[str]:
    rows = df.drop("partition_id").select(F.to_json(F.struct("*"))).collect()
    return sorted(json_text for (json_text,) in rows)


def types_of(df: DataFrame) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in df.schema]


@pytest.mark.parametrize("options", READS, ids=lambda options: "-".join(options.values()))
def test_a_state_has_the_columns_and_rows_that_spark_shows(
    checkpoints: Checkpoints, options: dict[str, str]
) -> None:
    theirs = read(checkpoints, checkpoints.on_spark, options)
    ours = read(checkpoints, checkpoints.on_cowstate, options)
    assert types_of(ours) == types_of(theirs)
    assert all_but_partitions(ours) == all_but_partitions(theirs)
    assert all_but_partitions(ours)


def test_registered_timers_are_those_that_spark_shows(checkpoints: Checkpoints) -> None:
    options = {"readRegisteredTimers": "true"}
    theirs = read(checkpoints, checkpoints.timed_on_spark, options)
    ours = read(checkpoints, checkpoints.timed_on_cowstate, options)
    assert types_of(ours) == types_of(theirs)
    assert all_but_partitions(ours) == all_but_partitions(theirs)
    assert all_but_partitions(ours)


def test_one_partition_has_the_keys_of_one_subtask(checkpoints: Checkpoints) -> None:
    whole = read(checkpoints, checkpoints.on_cowstate, {"stateVarName": "total"})
    partitions = {row.partition_id for row in whole.collect()}
    parts = [
        read(
            checkpoints,
            checkpoints.on_cowstate,
            {
                "stateVarName": "total",
                "snapshotStartBatchId": "0",
                "snapshotPartitionId": str(partition),
            },
        ).collect()
        for partition in partitions
    ]
    assert sorted(row for part in parts for row in part) == sorted(whole.collect())
    assert all(
        {row.partition_id for row in part} == {partition}
        for part, partition in zip(parts, partitions, strict=True)
    )


def test_the_metadata_of_an_operator_names_its_states(checkpoints: Checkpoints) -> None:
    def entry(at: Path) -> tuple[Any, dict[str, Any]]:
        (row,) = checkpoints.spark.read.format("state-metadata").load(str(at)).collect()
        return row, json.loads(row.operatorProperties)

    for at, other in (
        (checkpoints.on_cowstate, checkpoints.on_spark),
        (checkpoints.timed_on_cowstate, checkpoints.timed_on_spark),
    ):
        (ours, our_properties), (theirs, their_properties) = entry(at), entry(other)
        assert ours.operatorName == "operator-0"
        same = ("operatorId", "stateStoreName", "minBatchId", "maxBatchId")
        assert [ours[name] for name in same] == [theirs[name] for name in same]
        assert our_properties["timeMode"] == their_properties["timeMode"]

        def variables(properties: dict[str, Any]) -> list[tuple[str, str, bool]]:
            return sorted(
                (state["stateName"], state["stateVariableType"], state["ttlEnabled"])
                for state in properties["stateVariables"]
            )

        assert variables(our_properties) == variables(their_properties)


def test_what_cannot_be_read_is_an_error_that_names_the_way_out(checkpoints: Checkpoints) -> None:
    at = checkpoints.on_cowstate
    with pytest.raises(ConfigurationError, match=r"state variable tota is not defined.*total"):
        read(checkpoints, at, {"stateVarName": "tota"})
    with pytest.raises(ConfigurationError, match="leave readRegisteredTimers out"):
        read(checkpoints, at, {"readRegisteredTimers": "true"})
    with pytest.raises(PySparkException, match="stateVarName") as caught:
        read(checkpoints, at, {"readRegisteredTimers": "true", "stateVarName": "total"})
    assert caught.value.getCondition() == "STDS_CONFLICT_OPTIONS"
    with pytest.raises(PySparkException, match=r"batchId.*negative"):
        read(checkpoints, at, {"stateVarName": "total", "batchId": "-1"})


def test_a_session_that_is_not_enabled_asks_spark_only(checkpoints: Checkpoints) -> None:
    other = checkpoints.spark.newSession()
    at = str(checkpoints.on_cowstate)
    assert other.read.format("state-metadata").load(at).collect() == []


def test_the_progress_of_an_idle_query_shows_the_state_as_it_is(
    enabled: SparkSession, stream: Stream
) -> None:
    stream.feed([("a", 1)])
    writer = (
        by_rows(stream.source())
        .writeStream.foreachBatch(lambda batch, _: batch.collect())
        .outputMode("update")
        .option("checkpointLocation", str(stream.checkpoint))
    )
    with configured(enabled, {"spark.sql.streaming.noDataProgressEventInterval": "100"}):
        query = writer.start()
    try:
        query.processAllAvailable()
        progress = query.lastProgress
        for _ in range(600):
            if progress is not None and progress.batchId == 1:
                break
            query.awaitTermination(0.1)  # type: ignore[arg-type]
            progress = query.lastProgress
    finally:
        query.stop()
    assert progress is not None
    assert progress.batchId == 1
    (operator,) = progress.stateOperators
    assert (operator.numRowsTotal, operator.numRowsUpdated) == (3, 0)
