"""Tries the provider's jar for Spark 4.1: python -m scripts.spark_4_1_trial

    compile    the jar
    run        `scripts/spark_4_1/trial_queries.py`, in a process with PySpark 4.1, compares each
               stateful operator with Spark's own provider, and leaves its checkpoints in
               `build/spark-4.1-trial`
    read       the readers of cowstate and of the installed Spark must find the same states in the
               checkpoints as Spark 4.1

The exit status is 1 if anything differs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pyarrow as pa
from pyspark.sql import SparkSession

import spark_state
from scripts import spark_4_1_jar
from scripts.spark_4_1.trial_queries import (
    STATES,
    WAYS,
    builder,
    differences,
    folder_of,
    state_lines,
)
from tests.support.provider.operator_jobs import OPERATOR_JOBS
from tests.support.provider.provider_histories import History, reader_of, state_at
from tests.support.provider.provider_jobs import COWSTATE, Entry, ProviderRun

ROOT = spark_4_1_jar.ROOT
FOLDER = ROOT / "build" / "spark-4.1-trial"


def run_queries() -> None:
    """Run the queries in Spark 4.1. Ends this process if the queries fail."""
    paths = [str(ROOT / "build" / "spark-4.1"), str(ROOT)]
    variables = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": sys.executable,
    }
    # SPARK_HOME names the installed Spark.
    variables.pop("SPARK_HOME", None)
    program = [sys.executable, "-m", "scripts.spark_4_1.trial_queries"]
    arguments = [str(spark_4_1_jar.JAR), str(FOLDER)]
    queries = subprocess.run([*program, *arguments], cwd=ROOT, env=variables, check=False)
    if queries.returncode:
        sys.exit(queries.returncode)


def read_without_spark(run: ProviderRun) -> list[str]:
    """Read the states after all batches with cowstate's reader."""
    readers = [reader_of(run, store) for store in run.job.stores]
    states = {
        batch: [
            Entry(place, 0, f"{key} {value}")
            for place, reader in enumerate(readers)
            for key, value in state_at(reader, batch).items()
        ]
        for batch in run.batches
    }
    return state_lines(states)


def read_with_spark(run: ProviderRun) -> list[str]:
    """Read the states after all batches with the reader of the installed Spark."""
    return state_lines(History.of_run(run).states([*run.batches]))


def columns_of_files() -> dict[str, set[tuple[str, ...]]]:
    """The columns of all files of state, by the kind of file, as pyarrow opens them."""
    columns: dict[str, set[tuple[str, ...]]] = {}
    for path in FOLDER.rglob("*.arrow"):
        kind = path.name.split(".")[1]
        columns.setdefault(kind, set()).add(tuple(pa.ipc.open_file(str(path)).schema.names))
    return columns


def differences_of_readers(spark: SparkSession, name: str, way: str) -> list[str]:
    """Compare the states that Spark 4.1 has read from a query's checkpoint with the states that the
    installed Spark and cowstate's reader without Spark read now. Return the differences. `way`: a
    key of WAYS."""
    folder = folder_of(FOLDER, name, way)
    run = ProviderRun(spark, OPERATOR_JOBS[name][0], COWSTATE, folder)
    expected = json.loads((folder / STATES).read_text())
    return [
        *differences(f"{name}, {way}, read without Spark", expected, read_without_spark(run)),
        *differences(f"{name}, {way}, read by Spark", expected, read_with_spark(run)),
    ]


def main() -> None:
    spark_4_1_jar.main()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    run_queries()
    files = {kind: {("key", "value")} for kind in ("changelog", "snapshot")}
    columns = columns_of_files()
    differing = [] if columns == files else [f"files have the columns {columns}, not {files}"]
    spark = spark_state.configure(builder(FOLDER)).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for name in OPERATOR_JOBS:
        for way in WAYS:
            differing += differences_of_readers(spark, name, way)
    spark.stop()
    print(*(differing or ["the readers find the same states"]), sep="\n")
    if differing:
        sys.exit(1)


if __name__ == "__main__":
    main()
