"""Stateful operators give the rows and keep the state that they do with Spark's own providers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from tests.support.processors import TOTALS_SCHEMA, RunningTotals
from tests.support.provider_histories import History, assert_history_is, assert_readers_agree
from tests.support.provider_inputs import EventShape, write_batches
from tests.support.provider_jobs import (
    COWSTATE,
    HDFS,
    JOIN_STORES,
    ROCKSDB,
    STATE_STORE,
    THROUGH_MANAGER,
    Batches,
    Fields,
    Job,
    Options,
    ProviderRun,
    maintenance_of,
    run_together_with_restart,
)
from tests.support.provider_jvm import ProviderJvm, provider_jvm

__all__ = ["provider_jvm"]
pytestmark = pytest.mark.spark

BATCHES = 4
SHAPE = EventShape(rows=120, keys=30)
SPARSE = EventShape(rows=60, keys=200)
SCATTERED = EventShape(rows=60, keys=60)
JOINED = EventShape(rows=100, keys=60)
ON_DISK = {f"{STATE_STORE}.cowstate.backend": "disk"}
TWO_OPERATORS = ({"operatorId": "0"}, {"operatorId": "1"})
JOIN_BELOW = ({"operatorId": "0"}, *({"operatorId": "1", **store} for store in JOIN_STORES))
GROUP_STATE = "events bigint, text string"
GROUP_OUTPUT = "key string, events bigint, text string, timed_out boolean"


def marked(events: DataFrame) -> DataFrame:
    return events.withWatermark("moment", "1 minute")


def totals(groups: Any) -> DataFrame:
    aggregated: DataFrame = groups.agg(
        F.count("*").alias("events"),
        F.sum("amount").alias("amount"),
        F.max("text").alias("longest"),
    )
    return aggregated


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

    return Job(build, stores=JOIN_STORES)


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
    # With a timeout by the clock there is always one more batch to run.
    settings = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
    return Job(build, "update", compared=with_timeout_to_come, settings=settings)


def with_timeout_to_come(value: Fields) -> Fields:
    """Whether it lies ahead: when it is depends on the clock."""
    return {**value, "timeoutTimestamp": value["timeoutTimestamp"] > time.time() * 1000}


def assert_states_are_read(run: ProviderRun, states: Batches) -> None:
    """As a whole, before the restart and before the last batch."""
    chosen = [BATCHES // 2 - 1, run.batches[-2]]
    for batch, entries in run.states(chosen).items():
        assert entries == states[batch] != []


@dataclass
class Trials:
    """Jobs and their inputs, run with any provider. All of them stop and go on after two batches.

    What the built-in provider does is found out once for each job.
    """

    spark: SparkSession
    folder: Path
    jobs: Mapping[str, tuple[Job, EventShape]]
    histories: dict[str, History] = field(default_factory=dict)

    def begin(
        self, name: str, provider: str, options: Options = THROUGH_MANAGER, actions: int = 1
    ) -> ProviderRun:
        job, _ = self.jobs[name]
        folder = Path(mkdtemp(dir=self.folder))
        return ProviderRun(self.spark, job, provider, folder, options, actions)

    def run(self, name: str, *runs: ProviderRun) -> None:
        _, shape = self.jobs[name]
        left, right = (self.folder / name / side for side in ("left", "right"))
        if not left.exists():
            write_batches(left, 1, BATCHES, shape)
            write_batches(right, 101, BATCHES, shape)
        files = ([*sorted(side.iterdir())] for side in (left, right))
        run_together_with_restart(runs, *files)

    def run_beside_built_in(self, name: str, *runs: ProviderRun) -> History:
        """Run these; returns outputs and states with the built-in provider."""
        if name in self.histories:
            self.run(name, *runs)
        else:
            hdfs = self.begin(name, HDFS)
            self.run(name, hdfs, *runs)
            history = History.of_run(hdfs).compared(hdfs.job.compared)
            assert_states_are_read(hdfs, history.states())
            self.histories[name] = history
        return self.histories[name]


@pytest.fixture(scope="module")
def trials(
    spark: SparkSession, provider_jvm: ProviderJvm, tmp_path_factory: pytest.TempPathFactory
) -> Trials:
    operators = provider_jvm.new("GroupStateOperators")
    jar = operators.getClass().getProtectionDomain().getCodeSource().getLocation().getPath()
    spark.sql(f"ADD JAR '{jar}'")
    in_scala = {
        name: (grouped_in_scala(operators, method, timeout), shape)
        for name, (method, timeout, shape) in SCALA_JOBS.items()
    }
    return Trials(spark, tmp_path_factory.mktemp("trials"), JOBS | in_scala)


@pytest.mark.parametrize("name", [*JOBS, *SCALA_JOBS])
def test_rows_and_state_of_every_batch_are_those_of_the_built_in_provider(
    trials: Trials, name: str
) -> None:
    cowstate = trials.begin(name, COWSTATE, {})
    on_disk = trials.begin(name, COWSTATE, THROUGH_MANAGER | ON_DISK)
    expected = trials.run_beside_built_in(name, cowstate, on_disk)
    states = expected.states()
    assert [*expected.outputs] == [*cowstate.batches]
    assert len(states) >= BATCHES
    assert sum(len(rows) for (rows,) in expected.outputs.values()) >= BATCHES
    assert expected.shrank() == cowstate.job.shrinks
    history = History.of_run(cowstate)
    assert history.compared(cowstate.job.compared) == expected
    assert_states_are_read(cowstate, states)
    assert_readers_agree(cowstate, history)
    assert History.of_run(on_disk).compared(cowstate.job.compared) == expected


@pytest.mark.parametrize(
    "name",
    [
        "aggregation, append with eviction",
        "left outer join",
        "applyInPandasWithState",
        "flatMapGroupsWithState, event time",
        "join, then aggregation",
    ],
)
def test_both_built_in_providers_have_the_rows_and_state_that_are_compared_with(
    trials: Trials, name: str
) -> None:
    rocksdb = trials.begin(name, ROCKSDB)
    expected = trials.run_beside_built_in(name, rocksdb)
    assert rocksdb.outputs == expected.outputs
    assert_states_are_read(rocksdb, expected.states())


@pytest.mark.parametrize("checkpoint_format", ["1", "2"])
def test_a_state_is_read_from_a_snapshot_and_the_changes_after_it(
    trials: Trials, spark: SparkSession, checkpoint_format: str
) -> None:
    settings = {
        f"{STATE_STORE}.minDeltasForSnapshot": "1",
        f"{STATE_STORE}.maintenanceInterval": "50ms",
        f"{STATE_STORE}.checkpointFormatVersion": checkpoint_format,
    }
    name = "session windows"
    cowstate = trials.begin(name, COWSTATE, settings)
    with maintenance_of(spark):
        trials.run(name, cowstate)
    states = trials.run_beside_built_in(name).states()
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
def test_checkpoint_format_2_changes_neither_rows_nor_state(trials: Trials, name: str) -> None:
    cowstate = trials.begin(name, COWSTATE, {f"{STATE_STORE}.checkpointFormatVersion": "2"})
    assert_history_is(trials.run_beside_built_in(name, cowstate), cowstate)
    assert "stateUniqueIds" in (cowstate.checkpoint / "commits" / "0").read_text()


@pytest.mark.parametrize("name", ["aggregation, update", "full outer join"])
def test_each_action_on_a_batch_computes_the_same_rows_from_the_same_state(
    trials: Trials, name: str
) -> None:
    validated = {f"{STATE_STORE}.commitValidation.enabled": "true"}
    cowstate = trials.begin(name, COWSTATE, validated, actions=2)
    expected = trials.run_beside_built_in(name, cowstate)
    for first, second in cowstate.outputs.values():
        assert first == second
    cowstate.outputs = {batch: rows[:1] for batch, rows in cowstate.outputs.items()}
    assert_history_is(expected, cowstate)


@pytest.mark.parametrize(
    ("codec", "magic"),
    [("lz4", b"\x04\x22\x4d\x18"), ("zstd", b"\x28\xb5\x2f\xfd")],
    ids=["lz4", "zstd"],
)
def test_state_files_are_arrow_compressed_with_the_configured_codec(
    trials: Trials, codec: str, magic: bytes
) -> None:
    name = "aggregation, update"
    cowstate = trials.begin(name, COWSTATE, {f"{STATE_STORE}.compression.codec": codec})
    assert_history_is(trials.run_beside_built_in(name, cowstate), cowstate)
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
