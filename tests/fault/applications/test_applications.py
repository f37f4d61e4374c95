"""Whole applications, each with its own driver, give correct totals though hosts or executors are
killed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from checkpoint_store.open_history import open_history
from tests.fault.applications.test_exactly_once import hosts_of
from tests.support.applications.streams import (
    Row,
    Stream,
    feed_rows,
    random_rows,
    totals_in,
    totals_of,
)
from tests.support.applications.whole_applications import ROOT, start
from tests.support.operators.subtasks import stored_totals
from tests.support.processors.processors import POISON
from tests.support.provider.provider_jobs import configured
from tests.support.stores.moto_s3 import S3Server, moto_s3

pytestmark = [pytest.mark.spark, pytest.mark.fault]
JOB = "tests.support.applications.job"
# Longer than clients and task retries last by themselves.
SECONDS_AWAY = 25


def feed(folder: Path, epochs: list[list[Row]], first: int = 0) -> list[Row]:
    for number, rows in enumerate(epochs, first):
        feed_rows(folder, number, rows)
    return [row for rows in epochs for row in rows]


def run_job(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", JOB, str(folder), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("killed", "options"),
    [
        ("host", ("--master", "local[2,4]")),
        ("executor", ("--master", "local-cluster[2,1,1024]", "--parallelism", "3")),
    ],
)
def test_with_retries_a_killed_host_or_executor_costs_a_task_attempt_and_loses_nothing(
    tmp_path: Path, killed: str, options: tuple[str, ...]
) -> None:
    epochs = [random_rows(seed, count=300, keys=60) for seed in range(5)]
    epochs[2].append(("key1", POISON))
    fed = feed(tmp_path, epochs)
    job = run_job(tmp_path, "--kill", killed, *options)
    assert job.returncode == 0, job.stderr[-5000:]
    assert (tmp_path / "killed").exists()
    assert totals_in(tmp_path) == totals_of(fed)


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
    job = start(JOB, str(tmp_path), *store, log=tmp_path / "log")
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
    # When Spark stops, its idle workers may print a traceback of their own: a pipe is broken.
    frames = re.findall(r'File "(.*)", line', said)
    assert [file for file in frames if not file.endswith("pyspark/daemon.py")] == []
    assert secret not in said

    fed += feed(tmp_path, [random_rows(6, count=300, keys=60)], first=6)
    later_job = run_job(tmp_path, *store, "--parallelism", "3", "--speak")
    assert later_job.returncode == 0, later_job.stderr[-5000:]
    assert totals_in(tmp_path) == totals_of(fed)
    assert "a processor prints" in later_job.stderr
    assert "a processor logs" in later_job.stderr


def test_scheduled_runs_of_one_epoch_write_snapshots_in_parts(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each run has a new host, as in an application of its own."""
    keys = 12_000  # more keys than a snapshot writes whole
    settings = {
        "spark.cowstate.store": (tmp_path / "store").as_uri(),
        "spark.cowstate.parallelism": "1",
        "spark.cowstate.minEpochsForSnapshot": "1",
        "spark.cowstate.backend": "heap",
    }
    stream = Stream(spark, tmp_path)
    with configured(spark, settings):
        for _ in range(4):
            for host in hosts_of(spark):
                host.kill()
            stream.feed([(f"key{number}", number % 7) for number in range(keys)])
            stream.run(stream.operator(name="totals"))
    assert stream.totals() == totals_of(stream.fed)
    (store,) = tmp_path.glob("store/*/totals")
    files = open_history(store.as_uri()).at(3).state
    parts = [file.rows for file in files if file.kind == "snapshot"]
    assert len(parts) >= 2
    # A quarter of the bytes, about which files only tell by rows.
    assert max(parts) <= 1.1 * keys / 4
    assert stored_totals(store) == totals_of(stream.fed)
