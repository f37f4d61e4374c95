"""Stateful operators give the same rows and state as with Spark's own providers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_state.spark.provider.spark_transforms import start_transforms_on_rocksdb
from tests.support.processors.processors import TOTALS_SCHEMA, RunningTotals
from tests.support.provider.operator_jobs import OPERATOR_JOBS, SCALA_JOBS, SHAPE, all_jobs
from tests.support.provider.provider_histories import (
    History,
    assert_history_is,
    assert_readers_agree,
)
from tests.support.provider.provider_inputs import EventShape, write_batches
from tests.support.provider.provider_jobs import (
    COWSTATE,
    HDFS,
    ROCKSDB,
    STATE_STORE,
    THROUGH_MANAGER,
    Batches,
    Counts,
    Job,
    Options,
    ProviderRun,
    maintenance_of,
    run_together_with_restart,
)
from tests.support.provider.provider_jvm import ProviderJvm

pytestmark = pytest.mark.spark

BATCHES = 4
DISK = {f"{STATE_STORE}.cowstate.backend": "disk"}
ON_DISK = {
    "aggregation, append with eviction",
    "dropDuplicates with eviction",
    "session windows",
    "full outer join",
    "join by keys of many types",
    "applyInPandasWithState",
    "flatMapGroupsWithState, event time",
}
"""The jobs that use a store in different ways."""
LIKE_OTHERS = {
    "aggregation, complete with watermark": "aggregation, complete",
    "left outer join": "full outer join",
    "right outer join": "full outer join",
    "dropDuplicates, then aggregation": "join, then aggregation",
    "mapGroupsWithState, event time": "flatMapGroupsWithState, event time",
}
"""The jobs of soaks, each with a job that uses its stores in the same way."""


def assert_states_are_read(run: ProviderRun, states: Batches) -> None:
    """Assert that readers find the whole state before the restart and before the last batch."""
    chosen = [BATCHES // 2 - 1, run.batches[-2]]
    for batch, entries in run.states(chosen).items():
        assert entries == states[batch] != []


@dataclass
class Trials:
    """Jobs and their inputs, for runs on any provider. All runs stop and go on after two batches.

    The result of the built-in provider, with its counts, is computed once for each job.
    """

    spark: SparkSession
    folder: Path
    jobs: Mapping[str, tuple[Job, EventShape]]
    histories: dict[str, History] = field(default_factory=dict)
    counts: dict[str, Counts] = field(default_factory=dict)

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
        """Run the given runs, and return outputs and states of the built-in provider."""
        if name in self.histories:
            self.run(name, *runs)
        else:
            hdfs = self.begin(name, HDFS)
            self.run(name, hdfs, *runs)
            self.histories[name] = History.of_run(hdfs).compared(hdfs.job.compared)
            self.counts[name] = hdfs.counts
        return self.histories[name]


@pytest.fixture(scope="module")
def trials(
    spark: SparkSession, provider_jvm: ProviderJvm, tmp_path_factory: pytest.TempPathFactory
) -> Trials:
    return Trials(spark, tmp_path_factory.mktemp("trials"), all_jobs(spark, provider_jvm))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.soak] if name in LIKE_OTHERS else [])
        for name in (*OPERATOR_JOBS, *SCALA_JOBS)
    ],
)
def test_rows_and_state_of_every_batch_are_those_of_the_built_in_provider(
    trials: Trials, name: str
) -> None:
    cowstate = trials.begin(name, COWSTATE, {})
    on_disk = [trials.begin(name, COWSTATE, THROUGH_MANAGER | DISK)] if name in ON_DISK else []
    expected = trials.run_beside_built_in(name, cowstate, *on_disk)
    states = expected.states()
    assert [*expected.outputs] == [*cowstate.batches]
    assert len(states) >= BATCHES
    assert sum(len(rows) for (rows,) in expected.outputs.values()) >= BATCHES
    assert expected.shrank() == cowstate.job.shrinks
    history = History.of_run(cowstate)
    assert history.compared(cowstate.job.compared) == expected
    assert_states_are_read(cowstate, states)
    assert_readers_agree(cowstate, history)
    assert [*trials.counts[name]] == [*cowstate.batches]
    assert cowstate.counts == trials.counts[name]
    for run in on_disk:
        assert History.of_run(run).compared(run.job.compared) == expected
        assert run.counts == cowstate.counts


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


def test_transform_with_state_of_spark_starts_on_rocksdb_with_a_warning(
    spark: SparkSession, tmp_path: Path
) -> None:
    def build(events: DataFrame, _: DataFrame) -> DataFrame:
        rows = events.selectExpr("key", "amount AS value").where("key IS NOT NULL")
        return rows.groupBy("key").transformWithState(
            RunningTotals(), TOTALS_SCHEMA, "update", "None"
        )

    start_transforms_on_rocksdb()
    batches = write_batches(tmp_path / "input", 8, 2, SHAPE)
    on_cowstate = ProviderRun(spark, Job(build, "update"), COWSTATE, tmp_path / "cowstate")
    with pytest.warns(UserWarning, match=r"call spark_state\.enable\(spark\) before"):
        on_cowstate.run(batches, [])
    on_rocksdb = ProviderRun(spark, Job(build, "update"), ROCKSDB, tmp_path / "rocksdb")
    on_rocksdb.run(batches, [])
    assert on_cowstate.outputs == on_rocksdb.outputs
    # The provider of the next query is the session's again.
    aggregation, _ = OPERATOR_JOBS["aggregation, update"]
    after = ProviderRun(spark, aggregation, COWSTATE, tmp_path / "after")
    after.run(batches, [])
    for run, provider in ((on_cowstate, ROCKSDB), (after, COWSTATE)):
        assert provider in (run.checkpoint / "offsets" / "0").read_text()
