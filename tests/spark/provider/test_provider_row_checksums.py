"""Spark's settings for row and file checksums work with the provider over restarts."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.ipc
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row, SparkSession

from spark_state.spark.provider.provider_class import PROVIDER_KEY
from tests.support.provider.adoption_jobs import (
    AGGREGATION,
    JOIN,
    SNAPSHOTS,
    joined,
    total,
    windows,
)
from tests.support.provider.provider_file_bytes import batch_places, sealed, value_place
from tests.support.provider.provider_histories import History, assert_history_is
from tests.support.provider.provider_inputs import EVENT_SCHEMA, EventShape, deliver, write_batches
from tests.support.provider.provider_jobs import (
    COWSTATE,
    HDFS,
    JOIN_STORES,
    STATE_STORE,
    THROUGH_MANAGER,
    Job,
    Options,
    ProviderRun,
    configured,
    maintenance_of,
    run_together,
)
from tests.support.provider.provider_jvm import START, Tasks

pytestmark = pytest.mark.spark

ENABLED = f"{STATE_STORE}.rowChecksum.enabled"
FILE_CHECKSUMS = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
ON = {ENABLED: "true", f"{STATE_STORE}.rowChecksum.readVerificationRatio": "1"}
ON_DISK = {f"{STATE_STORE}.cowstate.backend": "disk"}
SHAPE = EventShape(rows=80, keys=25)
SEGMENTS = (slice(2), slice(2, 3), slice(3, 4))
"""The batches that each run of a query gets."""
BATCHES = 4
CHANGED_ROW = (
    r"(?s)is damaged: record batch 0: a row's .*STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED"
)


JOBS = {
    AGGREGATION: Job(windows),
    JOIN: Job(joined, stores=JOIN_STORES),
}
Inputs = tuple[list[Path], list[Path]]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    folder = tmp_path_factory.mktemp("inputs")
    left, right = (write_batches(folder / side, 1, BATCHES, SHAPE) for side in ("left", "right"))
    return left, right


def state_files(checkpoint: Path, kind: str = "*") -> list[Path]:
    return sorted((checkpoint / "state").rglob(f"*.{kind}.arrow"))


def columns_of(files: list[Path]) -> set[int]:
    return {len(pa.ipc.open_file(str(path)).schema) for path in files}


def in_segments(inputs: Inputs) -> list[Inputs]:
    return [(inputs[0][batches], inputs[1][batches]) for batches in SEGMENTS]


Expected = Callable[[str], History]


@pytest.fixture(scope="module")
def expected(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, inputs: Inputs
) -> Expected:
    """Build the history of a job on Spark's own provider with its row checksums."""

    @cache
    def history(name: str) -> History:
        folder = tmp_path_factory.mktemp("hdfs")
        run = ProviderRun(spark, JOBS[name], HDFS, folder, {**THROUGH_MANAGER, **ON})
        for files in in_segments(inputs):
            run.run(*files)
        return History.of_run(run)

    return history


def test_rows_and_state_are_those_of_the_built_in_provider_with_the_same_settings(
    spark: SparkSession, tmp_path: Path, inputs: Inputs, expected: Expected
) -> None:
    settings = {**ON, **SNAPSHOTS}
    on_heap = ProviderRun(spark, JOBS[JOIN], COWSTATE, tmp_path / "heap", settings)
    on_disk = ProviderRun(spark, JOBS[JOIN], COWSTATE, tmp_path / "disk", settings | ON_DISK)
    with maintenance_of(spark):
        for files in in_segments(inputs):
            run_together([on_heap, on_disk], *files)
    assert expected(JOIN).shrank()
    for run in (on_heap, on_disk):
        assert_history_is(expected(JOIN), run)
        assert state_files(run.checkpoint, "snapshot")
        assert columns_of(state_files(run.checkpoint)) == {3}


def test_a_restart_with_another_setting_goes_by_that_of_the_offset_log(
    spark: SparkSession, tmp_path: Path, inputs: Inputs, expected: Expected
) -> None:
    run = ProviderRun(spark, JOBS[AGGREGATION], COWSTATE, tmp_path / "cowstate", ON)
    for files in in_segments(inputs):
        run.run(*files)
        run.settings = {ENABLED: "false"}
    assert_history_is(expected(AGGREGATION), run)
    assert columns_of(state_files(run.checkpoint)) == {3}


def with_another_row(data: bytes, value: bytes) -> bytes:
    """A state file of one record batch with a changed byte in this value, and new sums."""
    changed = bytearray(data)
    assert data.count(value) == 1
    changed[data.index(value) + 8] ^= 1
    ((start, end),) = batch_places(data)
    summed = b"%08x" % zlib.crc32(changed[start:end])
    place = value_place(data, b"cowstate.batch_crc32")
    changed[place : place + len(summed)] = summed
    return sealed(bytes(changed))


def damage_a_row(path: Path) -> None:
    data = path.read_bytes()
    (value,) = pa.ipc.open_file(pa.BufferReader(data)).read_all()["value"].to_pylist()
    assert value is not None
    path.write_bytes(with_another_row(data, value))


@pytest.mark.parametrize("settings", [{}, ON_DISK], ids=["heap", "disk"])
def test_a_row_that_changed_in_a_file_is_found_though_the_file_has_new_sums(
    spark: SparkSession, tmp_path: Path, inputs: Inputs, settings: Options
) -> None:
    job, with_checksums = Job(total, "update"), {ENABLED: "true", **settings}
    run = ProviderRun(spark, job, COWSTATE, tmp_path / "run", with_checksums)
    run.run(inputs[0][:2], [])
    (*_, newest) = state_files(run.checkpoint, "changelog")
    intact = newest.read_bytes()
    damage_a_row(newest)
    with pytest.raises(StreamingQueryException, match=CHANGED_ROW):
        run.run(inputs[0][2:3], [])
    newest.write_bytes(intact)
    run.run([], [])
    (row,) = run.outputs[2][-1]
    assert f"events={3 * SHAPE.rows}," in row


CHECKED = f"{START} stateStore.rowChecksum.enabled=true"
FAILED_TO_LOAD = (
    "error CANNOT_LOAD_STATE_STORE.UNCATEGORIZED by STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED"
)


def test_the_cause_of_such_an_error_is_sparks_own_and_names_the_store(
    tasks: Tasks, tmp_path: Path
) -> None:
    lines = [CHECKED, "begin", "put 1 2:81985529216486895", "commit"]
    tasks(*lines)
    (changelog,) = (tmp_path / "0/0").glob("*.changelog.arrow")
    damage_a_row(changelog)
    script = [CHECKED, "get 1 1", "message get 1 1"]
    *_, error, message = tasks(*script)
    assert error == FAILED_TO_LOAD
    assert f"{changelog.name} is damaged: record batch 0: a row's checksum differs" in message
    assert "StateStoreId[ operatorId=0, partitionId=0, storeName=default ]" in message


def test_such_an_error_tells_of_the_snapshot_that_was_passed_over_before(
    tasks: Tasks, tmp_path: Path
) -> None:
    lines = [CHECKED, "begin-forced", "put 1 2:81985529216486895", "commit"]
    tasks(*lines)
    paths = list((tmp_path / "0/0").glob("*.arrow"))
    assert len(paths) == 2
    for path in paths:
        damage_a_row(path)
    *_, error = tasks(CHECKED, "get 1 1")
    assert error == f"{FAILED_TO_LOAD}, suppressed CowStateCorruptException"


Location = Callable[[Path], tuple[str, Options]]


def through_manager(folder: Path) -> tuple[str, Options]:
    return str(folder), THROUGH_MANAGER


def on_another_scheme(folder: Path) -> tuple[str, Options]:
    mounts = f"mounts{uuid4().hex}"  # Hadoop keeps open file systems by name.
    link = {f"fs.viewfs.mounttable.{mounts}.link./here": folder.parent.as_uri()}
    return f"viewfs://{mounts}/here/{folder.name}", link


@pytest.mark.parametrize("checkpoint_format", ["1", "2"])
@pytest.mark.parametrize("location", [through_manager, on_another_scheme])
def test_file_checksums_of_spark_do_no_harm(
    spark: SparkSession, tmp_path: Path, inputs: Inputs, location: Location, checkpoint_format: str
) -> None:
    url, settings = location(tmp_path / "checkpoint")
    rows: list[Row] = []
    settings = {
        **settings,
        **SNAPSHOTS,
        PROVIDER_KEY: COWSTATE,
        FILE_CHECKSUMS: "true",
        f"{STATE_STORE}.checkpointFormatVersion": checkpoint_format,
    }
    (tmp_path / "fed").mkdir()
    source = spark.readStream.schema(EVENT_SCHEMA).option("maxFilesPerTrigger", 1)
    counts = source.parquet(str(tmp_path / "fed")).groupBy().count()
    with maintenance_of(spark), configured(spark, settings):
        for files, _ in in_segments(inputs)[:2]:
            deliver(files, tmp_path / "fed")
            query = (
                counts.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
                .outputMode("update")
                .option("checkpointLocation", url)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
    assert [row["count"] for row in rows] == [SHAPE.rows * n for n in range(1, 4)]
    written = {path.name for path in state_files(tmp_path / "checkpoint")}
    assert len(written) > 3
    beside = {path.name for path in (tmp_path / "checkpoint" / "state").rglob("*.crc")}
    assert not beside & {f"{name}.crc" for name in written}
