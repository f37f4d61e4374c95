"""Stateful operators give the rows and keep the state that they do with Spark's own providers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from tests.support.processors import TOTALS_SCHEMA, RunningTotals
from tests.support.provider_histories import JOIN_STORES, assert_histories_agree
from tests.support.provider_inputs import EventShape, write_batches
from tests.support.provider_jobs import (
    COWSTATE,
    HDFS,
    ROCKSDB,
    STATE_STORE,
    THROUGH_MANAGER,
    Batches,
    Job,
    Options,
    ProviderRun,
    maintenance_of,
    run_together_with_restart,
)
from tests.support.provider_jvm import ProviderJvm, provider_jvm

__all__ = ["provider_jvm"]
pytestmark = pytest.mark.spark

BATCHES = 6
SHAPE = EventShape(rows=120, keys=30)
SPARSE = EventShape(rows=60, keys=200)
SCATTERED = EventShape(rows=60, keys=60)
JOINED = EventShape(rows=100, keys=60)
SIDES = ({"joinSide": "left"}, {"joinSide": "right"})
TWO_OPERATORS = ({"operatorId": "0"}, {"operatorId": "1"})
JOIN_BELOW = ({"operatorId": "0"}, *({"operatorId": "1", **side} for side in SIDES))
GROUP_STATE = "events bigint, text string"
GROUP_OUTPUT = "key string, events bigint, text string, timed_out boolean"


def marked(events: DataFrame) -> DataFrame:
    return events.withWatermark("moment", "1 minute")


def totals(groups: Any) -> DataFrame:
    found: DataFrame = groups.agg(
        F.count("*").alias("events"),
        F.sum("amount").alias("amount"),
        F.max("text").alias("longest"),
    )
    return found


def by_key(events: DataFrame, _: DataFrame) -> DataFrame:
    return totals(events.groupBy("key"))


def overall(events: DataFrame, _: DataFrame) -> DataFrame:
    return totals(events.groupBy())


def by_window(events: DataFrame, _: DataFrame) -> DataFrame:
    return totals(marked(events).groupBy(F.window("moment", "40 seconds", "20 seconds"), "key"))


def distinct(events: DataFrame, _: DataFrame) -> DataFrame:
    return events.dropDuplicates(["key", "amount"])


def distinct_marked(events: DataFrame, _: DataFrame) -> DataFrame:
    return marked(events).dropDuplicates(["key", "moment"])


def distinct_within_watermark(events: DataFrame, _: DataFrame) -> DataFrame:
    return marked(events).dropDuplicatesWithinWatermark(["key", "amount"])


def sessions(events: DataFrame, _: DataFrame) -> DataFrame:
    return totals(marked(events).groupBy(F.session_window("moment", "25 seconds"), "key"))


def limited(events: DataFrame, _: DataFrame) -> DataFrame:
    return events.limit(3 * SHAPE.rows + 7)


def joined(how: str) -> Job:
    def build(left: DataFrame, right: DataFrame) -> DataFrame:
        lefts = marked(left).alias("l")
        rights = marked(right).alias("r")
        condition = (
            "l.key = r.key AND r.moment BETWEEN l.moment - INTERVAL 20 SECONDS "
            "AND l.moment + INTERVAL 30 SECONDS AND l.amount % 3 != r.amount % 3"
        )
        return lefts.join(rights, F.expr(condition), how)

    return Job(build, stores=SIDES)


def distinct_then_counted(events: DataFrame, _: DataFrame) -> DataFrame:
    kept = marked(events).dropDuplicates(["key", "moment"])
    return totals(kept.groupBy(F.window("moment", "30 seconds"), "key"))


def joined_then_counted(left: DataFrame, right: DataFrame) -> DataFrame:
    lefts = marked(left).withColumn("slot", F.window("moment", "30 seconds"))
    rights = marked(right).select("key", F.window("moment", "30 seconds").alias("slot"))
    pairs = lefts.join(rights, ["key", "slot"])
    return totals(pairs.groupBy(F.window("slot", "1 minute"), "key"))


def lengthen(
    key: tuple[Any, ...], parts: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Counts, keeps the newest text, and forgets a key that had no event for a while."""
    events, text = state.get if state.exists else (0, "")
    timed_out = state.hasTimedOut
    if timed_out:
        state.remove()
    else:
        for part in parts:
            events += len(part)
            text = max(part["text"])
        state.update((events, text))
        patience = 30_000 if events % 2 else 150_000
        state.setTimeoutTimestamp(max(state.getCurrentWatermarkMs(), 0) + patience)
    yield pd.DataFrame(
        {"key": [key[0]], "events": [events], "text": [text], "timed_out": [timed_out]}
    )


def grouped_in_pandas(events: DataFrame, _: DataFrame) -> DataFrame:
    return (
        marked(events)
        .groupBy("key")
        .applyInPandasWithState(
            lengthen, GROUP_OUTPUT, GROUP_STATE, "update", GroupStateTimeout.EventTimeTimeout
        )
    )


JOBS = {
    "aggregation, update": (Job(by_key, "update", shrinks=False), SHAPE),
    "aggregation, complete": (Job(by_key, "complete", shrinks=False), SHAPE),
    "aggregation without keys": (Job(overall, "update", shrinks=False), SHAPE),
    "aggregation, append with eviction": (Job(by_window), SHAPE),
    "aggregation, update with eviction": (Job(by_window, "update"), SHAPE),
    "dropDuplicates": (Job(distinct, shrinks=False), SHAPE),
    "dropDuplicates with eviction": (Job(distinct_marked), SHAPE),
    "dropDuplicatesWithinWatermark": (Job(distinct_within_watermark), SHAPE),
    "session windows": (Job(sessions), SHAPE),
    "inner join": (joined("inner"), JOINED),
    "left outer join": (joined("left_outer"), JOINED),
    "right outer join": (joined("right_outer"), JOINED),
    "full outer join": (joined("full_outer"), JOINED),
    "left semi join": (joined("left_semi"), JOINED),
    "applyInPandasWithState": (Job(grouped_in_pandas, "update"), SPARSE),
    "limit": (Job(limited, shrinks=False), SHAPE),
    "dropDuplicates, then aggregation": (Job(distinct_then_counted, stores=TWO_OPERATORS), SHAPE),
    "join, then aggregation": (Job(joined_then_counted, stores=JOIN_BELOW), JOINED),
}
SCALA_JOBS = {
    "flatMapGroupsWithState, event time": ("flatMapped", "EventTime", SPARSE),
    "flatMapGroupsWithState, processing time": ("flatMapped", "ProcessingTime", SCATTERED),
    "mapGroupsWithState, event time": ("mapped", "EventTime", SPARSE),
    "mapGroupsWithState": ("mapped", "None", SHAPE),
}


def grouped_in_scala(operators: Any, method: str, timeout: str) -> Job:
    def build(events: DataFrame, _: DataFrame) -> DataFrame:
        output = getattr(operators, method)(marked(events)._jdf, timeout)
        return DataFrame(output, events.sparkSession)

    if timeout != "ProcessingTime":
        return Job(build, "update")
    waits = "value.timeoutTimestamp > unix_millis(current_timestamp()) AS waits"
    entry = f"struct(key.*, value.groupState, {waits})"
    # With a timeout by the clock there is always one more batch to run.
    settings = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
    return Job(build, "update", entry=entry, settings=settings)


@dataclass(frozen=True, slots=True)
class Trial:
    """A job and its input, to be run with any providers."""

    spark: SparkSession
    folder: Path
    job: Job
    left: list[Path]
    right: list[Path]

    def run(self, settings: Mapping[str, Options], actions: int = 1) -> list[ProviderRun]:
        """Run with each of these providers and its settings, so many actions on each batch."""
        runs = [
            ProviderRun(self.spark, self.job, provider, self.folder / provider, options, actions)
            for provider, options in settings.items()
        ]
        run_together_with_restart(runs, self.left, self.right)
        return runs


Begin = Callable[[str, int], Trial]


@pytest.fixture(scope="module")
def jobs(spark: SparkSession, provider_jvm: ProviderJvm) -> Mapping[str, tuple[Job, EventShape]]:
    operators = provider_jvm.new("GroupStateOperators")
    jar = operators.getClass().getProtectionDomain().getCodeSource().getLocation().getPath()
    spark.sql(f"ADD JAR '{jar}'")
    in_scala = {
        name: (grouped_in_scala(operators, method, timeout), shape)
        for name, (method, timeout, shape) in SCALA_JOBS.items()
    }
    return JOBS | in_scala


@pytest.fixture
def trial(spark: SparkSession, tmp_path: Path, jobs: Mapping[str, tuple[Job, EventShape]]) -> Begin:
    def begin(name: str, seed: int) -> Trial:
        job, shape = jobs[name]
        left = write_batches(tmp_path / "left", seed, BATCHES, shape)
        right = write_batches(tmp_path / "right", seed + 100, BATCHES, shape)
        return Trial(spark, tmp_path, job, left, right)

    return begin


def shrank(states: Batches) -> bool:
    sizes = [len(states[batch]) for batch in sorted(states)]
    return any(later < earlier for earlier, later in pairwise(sizes))


@pytest.mark.parametrize("name", [*JOBS, *SCALA_JOBS])
def test_rows_and_state_of_every_batch_are_those_of_the_built_in_providers(
    trial: Begin, name: str
) -> None:
    job = trial(name, 1)
    hdfs, rocksdb, cowstate = job.run(
        {HDFS: THROUGH_MANAGER, ROCKSDB: THROUGH_MANAGER, COWSTATE: {}}
    )
    states = hdfs.states()
    assert len(hdfs.outputs) == len(states) >= BATCHES
    assert sum(len(rows) for (rows,) in hdfs.outputs.values()) >= BATCHES
    assert shrank(states) == job.job.shrinks
    assert cowstate.outputs == hdfs.outputs
    assert cowstate.states() == states
    assert rocksdb.outputs == hdfs.outputs
    before_restart, before_last = BATCHES // 2 - 1, rocksdb.batches[-2]
    for batch, entries in rocksdb.states([before_restart, before_last]).items():
        assert entries == states[batch] != []
    assert_histories_agree(cowstate)


@pytest.mark.parametrize(
    ("name", "stores"),
    [
        ("aggregation, append with eviction", [{}]),
        ("session windows", [{}]),
        ("full outer join", JOIN_STORES),
    ],
)
def test_the_change_feed_says_what_became_of_each_key_in_each_batch(
    trial: Begin, name: str, stores: list[Options]
) -> None:
    hdfs, cowstate = trial(name, 3).run({HDFS: THROUGH_MANAGER, COWSTATE: THROUGH_MANAGER})
    assert cowstate.outputs == hdfs.outputs
    for store in stores:
        changes = hdfs.last_changes(store)
        assert cowstate.last_changes(store) == changes
        assert {change.split()[0] for change in changes.values()} == {"update", "delete"}


@pytest.mark.parametrize("checkpoint_format", ["1", "2"])
def test_a_state_is_read_from_a_snapshot_and_the_changes_after_it(
    trial: Begin, spark: SparkSession, checkpoint_format: str
) -> None:
    settings = {
        f"{STATE_STORE}.minDeltasForSnapshot": "1",
        f"{STATE_STORE}.maintenanceInterval": "50ms",
        f"{STATE_STORE}.checkpointFormatVersion": checkpoint_format,
    }
    job = trial("session windows", 4)
    with maintenance_of(spark):
        (cowstate,) = job.run({COWSTATE: settings})
    (hdfs,) = job.run({HDFS: THROUGH_MANAGER})
    states = hdfs.states()
    last = cowstate.batches[-1]
    snapshots = cowstate.snapshots()
    assert {partition for partition, batch in snapshots if batch < last} == {0, 1}
    for partition, snapshot_batch in snapshots:
        for batch in {snapshot_batch, last}:
            replayed = cowstate.state_entries(
                {
                    "snapshotStartBatchId": str(snapshot_batch),
                    "snapshotPartitionId": str(partition),
                    "batchId": str(batch),
                }
            )
            assert replayed == [e for e in states[batch] if e.partition == partition]


@pytest.mark.parametrize("name", ["session windows", "left outer join"])
def test_checkpoint_format_2_changes_neither_rows_nor_state(trial: Begin, name: str) -> None:
    format_2 = {f"{STATE_STORE}.checkpointFormatVersion": "2"}
    hdfs, cowstate = trial(name, 5).run({HDFS: THROUGH_MANAGER, COWSTATE: format_2})
    assert cowstate.outputs == hdfs.outputs
    assert cowstate.states() == hdfs.states()
    assert "stateUniqueIds" in (cowstate.checkpoint / "commits" / "0").read_text()


@pytest.mark.parametrize("name", ["aggregation, update", "full outer join"])
def test_each_action_on_a_batch_computes_the_same_rows_from_the_same_state(
    trial: Begin, name: str
) -> None:
    validated = {f"{STATE_STORE}.commitValidation.enabled": "true"}
    hdfs, cowstate = trial(name, 6).run({HDFS: THROUGH_MANAGER, COWSTATE: validated}, actions=2)
    for first, second in cowstate.outputs.values():
        assert first == second
    assert cowstate.outputs == hdfs.outputs
    assert cowstate.states() == hdfs.states()


@pytest.mark.parametrize(
    ("codec", "magic"),
    [("lz4", b"\x04\x22\x4d\x18"), ("zstd", b"\x28\xb5\x2f\xfd")],
    ids=["lz4", "zstd"],
)
def test_state_files_are_arrow_compressed_with_the_configured_codec(
    trial: Begin, codec: str, magic: bytes
) -> None:
    compressed = {f"{STATE_STORE}.compression.codec": codec}
    hdfs, cowstate = trial("aggregation, update", 7).run(
        {HDFS: THROUGH_MANAGER, COWSTATE: compressed}
    )
    assert cowstate.states() == hdfs.states()
    files = sorted(cowstate.checkpoint.glob("state/0/[01]/*.changelog.arrow"))
    assert len(files) == 2 * BATCHES
    for file in files:
        assert magic in file.read_bytes()
        with pa.OSFile(str(file), "rb") as opened:
            assert pa.ipc.open_file(opened).read_all().column_names == ["key", "value"]


def test_transform_with_state_is_refused_with_the_error_of_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    def build(events: DataFrame, _: DataFrame) -> DataFrame:
        rows = events.selectExpr("key", "amount AS value").where("key IS NOT NULL")
        return rows.groupBy("key").transformWithState(
            RunningTotals(), TOTALS_SCHEMA, "update", "None"
        )

    left = write_batches(tmp_path / "input", 8, 1, SHAPE)
    run = ProviderRun(spark, Job(build, "update"), COWSTATE, tmp_path / "cowstate")
    with pytest.raises(StreamingQueryException, match="STORE_BACKEND_NOT_SUPPORTED_FOR_TWS"):
        run.run(left, [])
