"""Queries with state in mapped files of a local directory give exact results."""

from __future__ import annotations

import os
import random
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
from tests.support.applications.provider_application import totals
from tests.support.applications.streams import Row, Stream, random_rows, totals_of
from tests.support.provider.provider_jobs import (
    STATE_STORE,
    Options,
    configured,
    maintenance_of,
)
from tests.support.provider.provider_jvm import START, ProviderJvm, Script
from tests.support.provider.state_directories import Directory

pytestmark = pytest.mark.spark
BACKEND = f"{STATE_STORE}.cowstate.backend"
LOCAL_DIRECTORY = f"{STATE_STORE}.cowstate.localDirectory"
MAX_MEMORY = f"{STATE_STORE}.cowstate.maxMemoryMB"


def run(stream: Stream, settings: Options) -> StreamingQuery:
    """Run a count and a sum by key over all files fed so far."""
    provider = {PROVIDER_KEY: PROVIDER_CLASS, f"{STATE_STORE}.maintenanceInterval": "100ms"}
    stream.settings = {**provider, **settings}
    with maintenance_of(stream.spark):
        query: StreamingQuery = stream.run(totals(stream))
        return query


def metrics_of(query: StreamingQuery) -> dict[str, Any]:
    assert query.lastProgress is not None
    (operator,) = query.lastProgress["stateOperators"]
    return {"memory": operator["memoryUsedBytes"], **operator["customMetrics"]}


def wide_rows(seed: int, keys: int) -> list[Row]:
    """A row for each key, with long names."""
    chance = random.Random(seed)
    return [(f"{key:0200d}", chance.randrange(100)) for key in range(keys)]


def test_a_query_changes_its_backend_at_every_start(stream: Stream) -> None:
    for number, backend in enumerate(["heap", "disk", "DISK", "heap", "disk"]):
        for place in range(3):
            stream.feed(random_rows(10 * number + place, count=200, keys=90))
        metrics = metrics_of(run(stream, {BACKEND: backend}))
        assert (metrics["cowstateMappedBytes"] > 0) == (backend != "heap")
        assert stream.totals() == totals_of(stream.fed)


def test_a_state_on_disk_needs_no_room_in_the_heap(stream: Stream) -> None:
    for seed in (1, 2, 3):
        stream.feed(wide_rows(seed, 20_000))
    settings = {MAX_MEMORY: "1", f"{STATE_STORE}.minDeltasForSnapshot": "2"}
    with pytest.raises(StreamingQueryException, match=f"Set {BACKEND} to disk"):
        run(stream, settings)
    metrics = metrics_of(run(stream, {**settings, BACKEND: "disk"}))
    assert stream.totals() == totals_of(stream.fed)
    assert metrics["memory"] < 1 << 20 < 5 << 20 < metrics["cowstateMappedBytes"]


def test_a_task_of_a_store_that_was_unloaded_gets_an_error_and_no_memory_that_is_gone(
    provider_jvm: ProviderJvm, tmp_path: Path
) -> None:
    start = f"{START} stateStore.cowstate.backend=disk"
    script = Script().then(start, "begin", "put 1-2000 9:1", "commit", "begin", "put 7 9:2")
    script.then("get 7 -> 9:2", start)  # unloads the earlier provider
    for line in ["get 7", "put 8 9:3", "remove 9", "entries"]:
        script.add(line, "error CowStateException")
    script.then("abort", "begin", "get 7 -> 9:1")
    script.run_on(provider_jvm.new("ProviderScript", str(tmp_path)))


def mapped_files(spark: SparkSession, directory: Path) -> int:
    """The number of the directory's files mapped by the JVM; the files no longer have names."""
    maps = Path(f"/proc/{jvm_process(spark)}/maps").read_text()
    return sum(str(directory / "cowstate-") in line for line in maps.splitlines())


def test_memory_is_given_back_with_the_store(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    local = tmp_path / "local"
    local.mkdir()
    stream.feed(wide_rows(seed=4, keys=500))
    settings = {PROVIDER_KEY: PROVIDER_CLASS, BACKEND: "disk", LOCAL_DIRECTORY: str(local)}
    with configured(spark, settings), maintenance_of(spark):
        stream.run(totals(stream))
        assert mapped_files(spark, local) > 0
    assert mapped_files(spark, local) == 0
    assert [*local.iterdir()] == []


def test_files_of_a_process_that_was_killed_right_after_making_them_are_deleted(
    provider_jvm: ProviderJvm, tmp_path: Path
) -> None:
    old, new, other = (
        tmp_path / name
        for name in (f"cowstate-{uuid4()}.state", f"cowstate-{uuid4()}.state", "cowstate-a.state")
    )
    for file in (old, new, other):
        file.touch()
    for file in (old, other):
        os.utime(file, (time.time() - 7200, time.time() - 7200))
    start = (
        f"{START} stateStore.cowstate.backend=disk stateStore.cowstate.localDirectory={tmp_path}"
    )
    lines = [start, "begin", "abort"]
    assert provider_jvm.results("ProviderScript", tmp_path / "state", *lines) == ["", "", ""]
    assert [old.exists(), new.exists(), other.exists()] == [False, True, True]


def jvm_process(spark: SparkSession) -> int:
    gateway: Any = spark.sparkContext._gateway
    process: int = gateway.jvm.java.lang.ProcessHandle.current().pid()
    return process


@contextmanager
def files_of_at_most(spark: SparkSession, most_bytes: int) -> Iterator[None]:
    """Limit the size of files the JVM can write inside the `with` block, as on a full disk."""
    process = jvm_process(spark)
    soft, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_fails_the_batch_and_loses_nothing(spark: SparkSession, stream: Stream) -> None:
    stream.feed(wide_rows(1, 5_000))
    on_disk = {BACKEND: "disk"}
    run(stream, on_disk)
    stream.feed(wide_rows(2, 40_000))
    with (
        files_of_at_most(spark, 3 << 20),
        pytest.raises(StreamingQueryException, match="the state before it is in the checkpoint"),
    ):
        run(stream, on_disk)
    run(stream, on_disk)
    assert stream.totals() == totals_of(stream.fed)


def test_a_file_for_an_object_store_that_the_disk_has_no_room_for_is_named_with_the_way_out(
    spark: SparkSession, provider_jvm: ProviderJvm, tmp_path: Path
) -> None:
    directory = Directory(provider_jvm, "gateway", tmp_path.as_uri())
    directory.run("put a.arrow 10")
    with files_of_at_most(spark, 3 << 20):
        told = directory.result("put b.arrow 9000000")
    assert told.startswith("error CowStateDiskException The file for the object store cannot be ")
    assert "/blockmgr-" in told
    assert "Nothing is lost. Make room there, or set spark.local.dir to a directory on an" in told
    assert directory.run("put b.arrow 9000000", "list") == ["", "a.arrow b.arrow"]


@pytest.mark.parametrize(
    ("directory", "way_out"),
    [
        ("nothing", "Create that directory on every executor, or set spark"),
        ("file", "See to that directory, or set spark"),
    ],
)
def test_a_local_directory_that_cannot_be_used_is_named_with_the_way_out_that_fits(
    provider_jvm: ProviderJvm, tmp_path: Path, directory: str, way_out: str
) -> None:
    (tmp_path / "file").touch()
    place = f"stateStore.cowstate.localDirectory={tmp_path / directory}"
    lines = [f"{START} stateStore.cowstate.backend=disk {place}", "message begin 0"]
    *_, told = provider_jvm.results("ProviderScript", tmp_path / "state", *lines)
    assert f"cannot be kept in {tmp_path / directory}" in told
    assert way_out in told


def test_a_batch_is_undone_in_a_thread_that_is_interrupted(
    provider_jvm: ProviderJvm, tmp_path: Path
) -> None:
    """Spark interrupts a killed task. Undo and compaction need more room on the disk."""
    numbers = ",".join(map(str, range(3000)))
    script = Script().then("begin head -> ;0")
    for line in (
        *(f"puts {numbers} 60:1", "commit 1/a", "begin head", f"puts {numbers} 61:2"),
        *("interrupted abort", "begin head", f"interrupted puts {numbers} 62:3"),
        *("interrupted compact", "interrupted abort"),
    ):
        script.add(line, ";3000")
    for number in (0, 7, 2999):
        script.add(f"get {number}", "60:1;3000")
    script.run_on(provider_jvm.new("VersionsScript", False, 2, 0, str(tmp_path)))


def test_files_that_can_be_given_back_are_though_another_cannot(
    provider_jvm: ProviderJvm, tmp_path: Path
) -> None:
    assert provider_jvm.new("BrokenSegment", str(tmp_path)).close() == "NullPointerException 0"


def test_rows_of_almost_two_gib_get_room_of_their_own(provider_jvm: ProviderJvm) -> None:
    rows = provider_jvm.new("LongRows")
    assert rows.getTheirPage()
    assert rows.getTheirBlock() == 2
