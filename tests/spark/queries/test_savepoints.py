"""Users can write savepoints, read savepoints, and begin queries with savepoints."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_state
from tests.support.applications.streams import Stream, random_rows, totals_of
from tests.support.provider.provider_jobs import configured

pytestmark = pytest.mark.spark

BACKEND, PARALLELISM = "spark.cowstate.backend", "spark.cowstate.parallelism"


def cowstate(*arguments: str) -> str:
    """Run the command line in a separate process, and return its output."""
    command = [sys.executable, "-m", "cowstate", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_query_goes_on_from_a_savepoint_with_the_other_backend(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    settings = {BACKEND: "heap", PARALLELISM: "3", "spark.cowstate.minEpochsForSnapshot": "1"}
    for seed in range(3):
        stream.feed(random_rows(seed, count=60, keys=30))
        with configured(spark, settings):
            stream.run(stream.operator(name="totals"))
    of_query = stream.store().parent
    assert "has epoch 2 of" in cowstate("savepoint", str(of_query), str(tmp_path / "saved"))
    rows = spark.read.format("cowstate").load(str(tmp_path / "saved" / "totals")).collect()
    assert {row.key: (row.rows, row.total) for row in rows} == totals_of(stream.fed)
    shutil.rmtree(of_query)
    told = cowstate("restore", str(tmp_path / "saved"), str(of_query))
    assert "The last batch of the query's checkpoint must be 2" in told
    stream.feed(random_rows(9, count=60, keys=40))
    with configured(spark, {**settings, BACKEND: "rocksdb", PARALLELISM: "2"}):
        stream.run(stream.operator(name="totals"))
    assert stream.totals() == totals_of(stream.fed)


def test_a_new_query_begins_with_a_savepoint_that_was_moved(
    spark: SparkSession, tmp_path: Path
) -> None:
    old = Stream(spark, tmp_path / "old")
    old.feed([("a", 1), ("b", 2)])
    old.run(old.operator(name="totals"))
    (written,) = spark_state.savepoint(str(old.store()), str(tmp_path / "saved"))
    assert written.entries == 2
    shutil.move(tmp_path / "saved", tmp_path / "moved")
    shutil.rmtree(tmp_path / "old")
    new = Stream(spark, tmp_path / "new")
    new.feed([("a", 10)])
    with configured(spark, {"spark.cowstate.restoreFrom": str(tmp_path / "moved")}):
        new.run(new.operator(name="totals"))
    assert new.totals() == {"a": (2, 11)}
    rows = spark.read.format("cowstate").load(str(new.store())).collect()
    assert {row.key: row.total for row in rows} == {"a": 11, "b": 2}
