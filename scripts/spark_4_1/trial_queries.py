"""Runs each stateful operator in Spark 4.1, on Spark's own provider and on cowstate's.

    python -m scripts.spark_4_1.trial_queries JAR FOLDER

`scripts/spark_4_1_trial.py` starts this script with PySpark 4.1. Spark gets only the jar of
cowstate. Every query stops half-way and goes on. Rows, counts and states of all batches must be the
same. The checkpoints stay in FOLDER, each with the states that Spark 4.1 read there. The exit
status is 1 if anything differs, and the difference is printed.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from tests.support.provider.operator_jobs import OPERATOR_JOBS
from tests.support.provider.provider_histories import History
from tests.support.provider.provider_inputs import write_batches
from tests.support.provider.provider_jobs import (
    COUNTS,
    COWSTATE,
    HDFS,
    STATE_STORE,
    Batches,
    Options,
    ProviderRun,
    configured,
    maintenance_of,
    run_together_with_restart,
)

BATCHES = 4
STATES = "states.json"
WAYS: dict[str, Options] = {
    "heap": {f"{STATE_STORE}.minDeltasForSnapshot": "1"},
    "disk": {f"{STATE_STORE}.cowstate.backend": "disk"},
    "format-2": {f"{STATE_STORE}.checkpointFormatVersion": "2"},
}
"""Settings of the queries on cowstate's provider."""


def builder(folder: Path) -> SparkSession.Builder:
    """A builder of a small session with all files in a folder."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        f"{STATE_STORE}.maintenanceInterval": "50ms",
    }
    session = SparkSession.builder.master("local[2]").appName("cowstate-trial")
    for key, value in settings.items():
        session = session.config(key, value)
    return session


def folder_of(folder: Path, name: str, way: str) -> Path:
    """The folder of a query's checkpoint. `way`: a key of WAYS, "built-in" for Spark's provider, or
    "inputs" for the folder of the query's inputs."""
    return folder / name.replace(", ", " ").replace(" ", "-") / way


def state_lines(states: Batches) -> list[str]:
    """The content of all stores after batches."""
    return [
        f"batch {batch} leaves in store {entry.store}: {entry.content}"
        for batch, entries in states.items()
        for entry in entries
    ]


def states_read(run: ProviderRun) -> list[str]:
    """Read the states after all batches with the change feed. The last state is also read whole,
    and must equal the state to which the change feed leads."""
    # Spark 4.1 reads the commits of format 2 only in sessions with format 2.
    with configured(run.spark, run.settings):
        states = History.of_run(run).states()
        last = run.batches[-1]
        whole = run.states([last])
    assert whole[last] == states[last], f"{run.folder}: {whole[last]} is read, not {states[last]}"
    return state_lines(states)


def output_lines(run: ProviderRun) -> list[str]:
    """The output rows of a run's batches, and Spark's counts."""
    rows = [
        f"batch {batch} puts out {row}"
        for batch, (written,) in run.outputs.items()
        for row in written
    ]
    counts = [f"batch {batch} counts {COUNTS}: {of_it}" for batch, of_it in run.counts.items()]
    return [*rows, *counts]


def differences(title: str, expected: Iterable[str], actual: Iterable[str]) -> list[str]:
    """Compare lines, whatever their order. Return the title, then the lines of `expected` that
    `actual` lacks, and the lines of `actual` that `expected` lacks; nothing if there are no such
    lines."""
    wanted, got = Counter(expected), Counter(actual)
    missing = [f"- {line}" for line in sorted((wanted - got).elements())]
    surplus = [f"+ {line}" for line in sorted((got - wanted).elements())]
    return [title, *missing, *surplus] if missing or surplus else []


def differences_of_operator(spark: SparkSession, folder: Path, name: str) -> list[str]:
    """Run the query `name` on Spark's provider and, with each set of settings in WAYS, on
    cowstate's. Return the differences."""
    job, shape = OPERATOR_JOBS[name]
    inputs = (
        write_batches(folder_of(folder, name, "inputs") / side, seed, BATCHES, shape)
        for side, seed in (("left", 1), ("right", 101))
    )
    built_in = ProviderRun(spark, job, HDFS, folder_of(folder, name, "built-in"))
    runs = {
        way: ProviderRun(spark, job, COWSTATE, folder_of(folder, name, way), settings)
        for way, settings in WAYS.items()
    }
    run_together_with_restart([built_in, *runs.values()], *inputs)
    lines, states = output_lines(built_in), states_read(built_in)
    differing = []
    for way, run in runs.items():
        read = states_read(run)
        differing += differences(f"{name}, {way}", [*lines, *states], [*output_lines(run), *read])
        (run.folder / STATES).write_text(json.dumps(read))
    return differing


def differs(spark: SparkSession, folder: Path, name: str) -> bool:
    """Print the differences of an operator, and return True if there are any."""
    differing = differences_of_operator(spark, folder, name)
    outcome = "different" if differing else "the same"
    print(f"Spark {pyspark.__version__}, {name}: {outcome}", *differing, sep="\n", flush=True)
    return bool(differing)


def main() -> None:
    jar, folder = sys.argv[1], Path(sys.argv[2])
    if not pyspark.__version__.startswith("4.1."):
        sys.exit(f"PySpark is {pyspark.__version__}, and must be 4.1")
    spark = builder(folder).config("spark.jars", jar).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with maintenance_of(spark):
        differing = [differs(spark, folder, name) for name in OPERATOR_JOBS]
    spark.stop()
    if any(differing):
        sys.exit(1)


if __name__ == "__main__":
    main()
