"""After a change of the number of partitions, queries go on as if the number had always been the
same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import spark_state
from cowstate.cli.command_line import main
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.stopped_query import checkpoint_change
from spark_state.spark.stopped_query.change_folder import finish_last
from tests.support.applications.lost_commits import forget_last_commit
from tests.support.provider.adoption_jobs import ROW_CHECKSUMS, SNAPSHOTS, rewrite
from tests.support.provider.operator_jobs import all_jobs, by_key
from tests.support.provider.provider_inputs import EventShape, write_batches
from tests.support.provider.provider_jobs import (
    COWSTATE,
    HDFS,
    THROUGH_MANAGER,
    Job,
    Options,
    ProviderRun,
    maintenance_of,
)
from tests.support.provider.provider_jvm import ProviderJvm
from tests.support.provider.rescaled_jobs import (
    RescaledRun,
    partitions_of_state,
    rescale,
    rescaled,
    revert,
    rows_of_state,
)
from tests.support.provider.stopped_changes import StoppedError
from tests.support.tables.table_jobs import Changes, applied, in_order

pytestmark = pytest.mark.spark

BATCHES = 5
MAINTENANCE_INTERVAL = "spark.sql.streaming.stateStore.maintenanceInterval"
Begun = Callable[..., RescaledRun]
OPERATORS = {
    "aggregation, update": (5, 3),
    "aggregation without keys": (4, 2),
    "aggregation, append with eviction": (1, 4),
    "dropDuplicates": (5, 1),
    "dropDuplicatesWithinWatermark": (3, 6),
    "session windows": (5, 3),
    "full outer join": (5, 3),
    "left semi join": (4, 1),
    "applyInPandasWithState": (5, 3),
    "limit": (5, 1),
    "join, then aggregation": (3, 4),
    "flatMapGroupsWithState, event time": (5, 3),
}
"""The two numbers that each gets after the 2 with which it begins."""
SINGLE = {"aggregation without keys", "limit"}
LIKE_OTHERS = {
    "aggregation, append with eviction",
    "dropDuplicatesWithinWatermark",
    "left semi join",
    "flatMapGroupsWithState, event time",
}
"""The operators of soaks. The partition of their rows depends on the same columns as that of an
aggregation in update mode, dropDuplicates, a full outer join and applyInPandasWithState."""


@pytest.fixture(scope="module")
def jobs(spark: SparkSession, provider_jvm: ProviderJvm) -> dict[str, tuple[Job, EventShape]]:
    return all_jobs(spark, provider_jvm)


@pytest.fixture
def begun(spark: SparkSession, jobs: dict[str, tuple[Job, EventShape]], tmp_path: Path) -> Begun:
    """Build a job with two batches, on cowstate with these settings and on HDFSBacked."""

    def begin(
        name: str, settings: Options = THROUGH_MANAGER, batches: int = 2, files: int = BATCHES
    ) -> RescaledRun:
        job, shape = jobs[name]
        # The first query that loads a store decides the interval of maintenance.
        often = {key: value for key, value in settings.items() if key == MAINTENANCE_INTERVAL}
        run = RescaledRun(
            ProviderRun(spark, job, COWSTATE, tmp_path / "rescaled", settings),
            ProviderRun(spark, job, HDFS, tmp_path / "expected", {**THROUGH_MANAGER, **often}),
            write_batches(tmp_path / "left", 1, files, shape),
            write_batches(tmp_path / "right", 101, files, shape),
        )
        run.go_on(batches)
        return run

    return begin


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.soak] if name in LIKE_OTHERS else [])
        for name in OPERATORS
    ],
)
def test_an_operator_goes_on_with_other_numbers_as_if_uninterrupted(
    begun: Begun, name: str
) -> None:
    run = begun(name)
    for number in OPERATORS[name]:
        rescaled(run.rescaled.checkpoint, number)
        run.go_on(1)
        for store in run.rescaled.job.stores:
            used = partitions_of_state(run.rescaled, store)
            assert used <= ({0} if name in SINGLE else {*range(number)})
    run.assert_agrees()


def test_several_rescales_without_a_batch_between_them_and_after_each_batch(begun: Begun) -> None:
    run = begun("left outer join")
    for number in (6, 3, 2, 5):
        rescaled(run.rescaled.checkpoint, number)
    run.go_on(1)
    for number in (1, 4):
        rescaled(run.rescaled.checkpoint, number)
        run.go_on(1)
    run.assert_agrees()


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("session windows", {}),
        ("session windows", ROW_CHECKSUMS),
    ],
    ids=["nio", "checksums"],
)
def test_settings_of_the_state_store_are_kept(begun: Begun, name: str, settings: Options) -> None:
    run = begun(name, settings)
    for number in (5, 3):
        rescaled(run.rescaled.checkpoint, number)
        run.go_on(1)
    run.assert_agrees()
    if settings == ROW_CHECKSUMS:
        assert_rows_carry_checksums(run.rescaled.checkpoint)


def assert_rows_carry_checksums(checkpoint: Path) -> None:
    files = [*checkpoint.glob("state/0/[0-9]*/**/*.rescaled.arrow")]
    assert files
    for file in files:
        with pa.ipc.open_file(str(file)) as reader:
            assert "checksum" in reader.schema.names


def test_the_state_is_read_from_a_snapshot_and_the_changes_after_it(
    spark: SparkSession, begun: Begun
) -> None:
    with maintenance_of(spark):
        run = begun("session windows", SNAPSHOTS, 3, files=20)
        # Maintenance may come too late for the last batch of a short run.
        while not run.rescaled.snapshots() and run.done < 18:
            run.go_on(1)
    assert run.rescaled.snapshots()
    for number in (5, 2):
        rescaled(run.rescaled.checkpoint, number)
        # Later maintenance would write to the checkpoint during the rescale.
        with maintenance_of(spark):
            run.go_on(1)
    run.assert_agrees()


def test_a_query_that_has_no_commit_yet_only_changes_its_number(begun: Begun) -> None:
    run = begun("aggregation, update", batches=1)
    assert forget_last_commit(run.rescaled.checkpoint) == 0
    rescaled(run.rescaled.checkpoint, 3)
    run.rescaled.outputs.pop(0)
    run.go_on(1)
    run.assert_agrees()


@pytest.fixture(scope="module")
def read_run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ProviderRun:
    """A run with 2 partitions in batches 0 and 1, 5 partitions in batch 2, and 3 in batch 3."""
    folder = tmp_path_factory.mktemp("read")
    files = write_batches(folder / "files", 5, 4, EventShape(rows=80, keys=40))
    run = ProviderRun(spark, Job(by_key, "update"), COWSTATE, folder / "run", THROUGH_MANAGER)
    run.run(files[:2], [])
    for file, number in zip(files[2:], (5, 3), strict=True):
        rescaled(run.checkpoint, number)
        run.run([file], [])
    return run


class TestReaders:
    def test_every_batch_is_read_alike_by_all_readers(
        self, spark: SparkSession, read_run: ProviderRun
    ) -> None:
        for batch in range(4):
            expected = read_run.read_state({"batchId": str(batch)}).select("key.*", "value.*")
            rows = sorted(map(tuple, expected.collect()), key=repr)
            own = spark.read.format("cowstate").option("versionAsOf", batch)
            assert (
                sorted(map(tuple, own.load(str(read_run.checkpoint)).collect()), key=repr) == rows
            )
            assert len(rows) > 10

    def test_operators_note_the_new_number(self, read_run: ProviderRun) -> None:
        assert noted_partitions(read_run) == [3]

    def test_the_feed_of_spark_begins_with_the_first_batch_of_the_new_number(
        self, read_run: ProviderRun
    ) -> None:
        def changes(first: int, last: int) -> int:
            feed = {"changeStartBatchId": str(first), "changeEndBatchId": str(last)}
            return read_run.read_state({"readChangeFeed": "true", **feed}).count()

        assert changes(3, 3) > 0
        assert changes(0, 0) > 0
        with pytest.raises(Py4JJavaError, match="There is a change feed from batch 3 on"):
            changes(1, 3)


def test_a_stream_and_a_live_view_follow_a_query_across_a_rescale(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = write_batches(tmp_path / "files", 5, 3, EventShape(rows=80, keys=40))
    run = ProviderRun(spark, Job(by_key, "update"), COWSTATE, tmp_path / "run", THROUGH_MANAGER)
    run.run(files[:1], [])
    changes = Changes(spark, str(run.checkpoint), tmp_path / "follower")
    with spark_state.live_view(str(run.checkpoint)) as view:
        changes.run()
        for file, number in zip(files[1:], (5, 1), strict=True):
            rescaled(run.checkpoint, number)
            run.run([file], [])
            changes.run()
            view.refresh()
            state = run.read_state({}).select("key.*", "value.*").collect()
            assert applied(changes.rows()) == in_order(state)
            assert in_order((key, *values.values()) for key, values in view) == in_order(state)


def test_a_rescale_is_undone_until_the_query_has_run(
    begun: Begun, capsys: pytest.CaptureFixture[str]
) -> None:
    run = begun("session windows")
    before = rows_of_state(run.rescaled, run.rescaled.batches[-1])
    rescaled(run.rescaled.checkpoint, 5)
    revert(run.rescaled.checkpoint)
    assert rows_of_state(run.rescaled, run.rescaled.batches[-1]) == before
    rescaled(run.rescaled.checkpoint, 3)
    run.go_on(1)
    assert main(["rescale", str(run.rescaled.checkpoint), "--revert", "--force"]) == 2
    told = capsys.readouterr().err
    assert "with 3 partitions since" in told
    assert "Run cowstate rescale --partitions 2 instead" in told
    rescaled(run.rescaled.checkpoint, 2)
    run.go_on(1)
    run.assert_agrees()


def test_an_adopted_state_is_rescaled_and_goes_back_with_the_new_number(
    spark: SparkSession, tmp_path: Path, jobs: dict[str, tuple[Job, EventShape]]
) -> None:
    job, shape = jobs["session windows"]
    adopted, expected = (
        ProviderRun(spark, job, HDFS, tmp_path / name, THROUGH_MANAGER) for name in "ab"
    )
    left = write_batches(tmp_path / "left", 1, BATCHES, shape)
    right = write_batches(tmp_path / "right", 101, BATCHES, shape)
    run = RescaledRun(adopted, expected, left, right)
    run.go_on(2)
    assert main(["adopt", str(adopted.checkpoint), "--apply", "--force"]) == 0
    adopted.provider = COWSTATE
    for number in (5, 3):
        rescaled(adopted.checkpoint, number)
        run.go_on(1)
    assert main(["adopt", str(adopted.checkpoint), "--to", "hdfs", "--apply", "--force"]) == 0
    adopted.provider = HDFS
    run.go_on(1)
    run.assert_agrees()
    assert rescale(adopted.checkpoint, 2) == 2


def test_a_killed_rescale_that_took_effect_is_finished_however_late(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = long_after_a_kill(spark, tmp_path, monkeypatch, before="finish")
    assert noted_partitions(run) == [2]
    assert rescale(run.checkpoint, 3, "--apply", "--force") == 2
    assert noted_partitions(run) == [3]
    assert run.read_state({}).count() == 11


def test_a_killed_rescale_that_did_not_take_effect_is_not_finished(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = long_after_a_kill(spark, tmp_path, monkeypatch, before="check_unchanged")
    checkpoint_files = CheckpointFiles(spark, str(run.checkpoint))
    finish_last(checkpoint_files)
    assert noted_partitions(run) == [2]
    rescaled(run.checkpoint, 4)
    assert noted_partitions(run) == [4]


def test_a_file_that_was_changed_after_a_rescale_is_not_finished(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_batches(tmp_path / "files", 5, 1, EventShape(rows=40, keys=10))
    run = ProviderRun(spark, Job(by_key, "update"), COWSTATE, tmp_path / "run", THROUGH_MANAGER)
    run.run(files, [])
    kill_rescale(run, monkeypatch, before="finish")
    noted = run.checkpoint / "state" / "0" / "_metadata" / "metadata"
    changed = noted.read_text() + " "
    rewrite(noted, lambda text: f"{text} ")
    finish_last(CheckpointFiles(spark, str(run.checkpoint)))
    assert noted.read_text() == changed


def kill_rescale(run: ProviderRun, monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    """End a rescale to 3 partitions before the given step, and keep the checkpoint in its state."""
    with monkeypatch.context() as patch:
        for step in (before, "_undo_after"):
            patch.setattr(checkpoint_change, step, stopped)
        with pytest.raises(StoppedError):
            rescaled(run.checkpoint, 3)


def long_after_a_kill(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> ProviderRun:
    """A query that went on after `kill_rescale` until the entry of its first batch was gone."""
    settings = {**THROUGH_MANAGER, "spark.sql.streaming.minBatchesToRetain": "2"}
    files = write_batches(folder / "files", 5, 6, EventShape(rows=40, keys=10))
    run = ProviderRun(spark, Job(by_key, "update"), COWSTATE, folder / "run", settings)
    run.run(files[:1], [])
    kill_rescale(run, monkeypatch, before)
    for file in files[1:]:
        run.run([file], [])
    assert not (run.checkpoint / "offsets" / "0").exists()
    return run


def noted_partitions(run: ProviderRun) -> list[int]:
    """The number of partitions by operator, from Spark's metadata reader."""
    noted = run.spark.read.format("state-metadata").load(str(run.checkpoint)).collect()
    return [row.numPartitions for row in noted]


def stopped(*_: object, **__: object) -> None:
    raise StoppedError


def test_retention_deletes_files_of_a_rescale_as_any_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = {**SNAPSHOTS, "spark.sql.streaming.minBatchesToRetain": "2"}
    files = write_batches(tmp_path / "files", 5, 9, EventShape(rows=40, keys=10))
    run = ProviderRun(spark, Job(by_key, "update"), COWSTATE, tmp_path / "run", settings)
    with maintenance_of(spark):
        run.run(files[:1], [])
    rescaled(run.checkpoint, 3)
    assert len([*run.checkpoint.glob("state/0/*/*.rescaled.arrow")]) == 3
    with maintenance_of(spark):
        for file in files[1:]:
            run.run([file], [])
    assert not [*run.checkpoint.glob("state/0/*/*.rescaled.arrow")]
    keys = spark.read.format("cowstate").load(str(run.checkpoint)).count()
    assert keys == run.read_state({}).count() == 11
