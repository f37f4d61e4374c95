"""Whole applications, each with its own driver, give correct totals though hosts or executors are
killed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from checkpoint_store import open_store
from checkpoint_store.open_history import open_history
from tests.support.applications.streams import Row, Stream, Totals, random_rows, totals_of
from tests.support.processors.processors import POISON
from tests.support.provider.provider_jobs import configured
from tests.support.stores.moto_s3 import S3Server, moto_s3

pytestmark = [pytest.mark.spark, pytest.mark.fault]
ROOT = Path(__file__).resolve().parents[2]
# Longer than clients and task retries last by themselves.
SECONDS_AWAY = 25


def feed(folder: Path, epochs: list[list[Row]], first: int = 0) -> list[Row]:
    (folder / "input").mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(epochs, first):
        keys, values = zip(*rows, strict=True)
        table = pa.table({"key": pa.array(keys), "value": pa.array(values, pa.int64())})
        pq.write_table(table, folder / "input" / f"{number:05d}.parquet")
    return [row for rows in epochs for row in rows]


def run_job(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.support.applications.job", str(folder), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def totals_in(folder: Path) -> Totals:
    totals: Totals = {}
    epochs = sorted((folder / "output").iterdir(), key=lambda path: int(path.name[6:]))
    for path in epochs:
        for row in pq.read_table(path).to_pylist():
            totals[row["key"]] = (row["rows"], row["total"])
    return totals


def poisoned_epochs() -> list[list[Row]]:
    epochs = [random_rows(seed, count=300, keys=60) for seed in range(5)]
    epochs[2].append(("key1", POISON))
    return epochs


def test_with_retries_a_killed_host_costs_a_task_attempt_only(tmp_path: Path) -> None:
    fed = feed(tmp_path, poisoned_epochs())
    job = run_job(tmp_path, "--master", "local[2,4]", "--kill", "host")
    assert job.returncode == 0, job.stderr[-5000:]
    assert (tmp_path / "killed").exists()
    assert totals_in(tmp_path) == totals_of(fed)


def test_a_killed_executor_is_replaced_and_loses_nothing(tmp_path: Path) -> None:
    fed = feed(tmp_path, poisoned_epochs())
    job = run_job(
        tmp_path, "--master", "local-cluster[2,1,1024]", "--kill", "executor", "--parallelism", "3"
    )
    assert job.returncode == 0, job.stderr[-5000:]
    assert (tmp_path / "killed").exists()
    assert totals_in(tmp_path) == totals_of(fed)


def test_a_killed_driver_leaves_a_query_that_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    fed = feed(tmp_path, [random_rows(seed, count=300, keys=60) for seed in range(8)])
    command = [sys.executable, "-m", "tests.support.applications.job", str(tmp_path)]
    driver = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    descendants: list[psutil.Process] = []
    while not (tmp_path / "output" / "epoch=3").exists():
        assert driver.poll() is None, "the job ended too early"
        descendants = psutil.Process(driver.pid).children(recursive=True)
        time.sleep(0.05)
    for process in [*descendants, psutil.Process(driver.pid)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    driver.wait()
    stream = Stream(spark, tmp_path)
    with configured(spark, {"spark.cowstate.store": (tmp_path / "store").as_uri()}):
        stream.run(stream.operator(name="totals"))
    assert stream.totals() == totals_of(fed)


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with moto_s3() as server:
        yield server


def test_a_query_outlasts_a_store_on_s3_that_is_away_and_goes_on_with_another_parallelism(
    tmp_path: Path, s3: S3Server
) -> None:
    fed = feed(tmp_path, [random_rows(seed, count=300, keys=60) for seed in range(6)])
    secret = "a-secret-of-options"
    options = {**s3.storage_options, "secret": secret}
    store = ("--store", f"{s3.new_bucket()}/state", "--store-options", json.dumps(options))
    command = [sys.executable, "-m", "tests.support.applications.job", str(tmp_path), *store]
    with (tmp_path / "log").open("w") as log:
        job = subprocess.Popen(command, cwd=ROOT, stderr=log)
    while not (tmp_path / "output" / "epoch=1").exists():
        assert job.poll() is None, "the job ended too early"
        time.sleep(0.05)
    with s3.away():
        time.sleep(SECONDS_AWAY)
        assert job.poll() is None, "the job gave up"
    job.wait(timeout=300)
    said = (tmp_path / "log").read_text()
    assert job.returncode == 0, said[-5000:]
    assert totals_in(tmp_path) == totals_of(fed)
    hosts = 2
    assert 1 <= said.count("does not answer") == said.count("answers again") <= hosts
    assert "Traceback" not in said
    assert secret not in said

    fed += feed(tmp_path, [random_rows(6, count=300, keys=60)], first=6)
    later_job = run_job(tmp_path, *store, "--parallelism", "3", "--speak")
    assert later_job.returncode == 0, later_job.stderr[-5000:]
    assert totals_in(tmp_path) == totals_of(fed)
    assert_the_log_has_what_a_processor_prints_and_logs(later_job.stderr)


def assert_the_log_has_what_a_processor_prints_and_logs(log: str) -> None:
    assert "a processor prints" in log
    assert "a processor logs" in log


def test_scheduled_runs_of_one_epoch_write_snapshots_in_parts(
    spark: SparkSession, tmp_path: Path
) -> None:
    keys = 12_000  # more keys than a snapshot writes whole
    once = [(f"key{number}", number % 7) for number in range(keys)]
    fed: list[Row] = []
    for run in range(3):
        fed += feed(tmp_path, [once], first=run)
        job = run_job(tmp_path, "--parallelism", "1", "--min-epochs-for-snapshot", "1")
        assert job.returncode == 0, job.stderr[-5000:]
    fed += feed(tmp_path, [once], first=3)
    settings = {
        "spark.cowstate.store": (tmp_path / "store").as_uri(),
        "spark.cowstate.parallelism": "1",
        "spark.cowstate.minEpochsForSnapshot": "1",
        # The same backend as the earlier runs: a database is a different kind of snapshot.
        "spark.cowstate.backend": "heap",
    }
    with configured(spark, settings):
        stream = Stream(spark, tmp_path)
        stream.run(stream.operator(name="totals"))
    assert totals_in(tmp_path) == totals_of(fed)
    (store,) = tmp_path.glob("store/*/totals")
    files = open_history(store.as_uri()).at(3).state
    parts = [file.rows for file in files if file.kind == "snapshot"]
    assert len(parts) >= 2
    # A quarter of the bytes, about which files only tell by rows.
    assert max(parts) <= 1.1 * keys / 4
    state = open_store(store.as_uri()).read().to_pylist()
    assert {row["key"]: (row["rows"], row["total"]) for row in state} == totals_of(fed)
