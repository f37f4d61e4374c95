"""`cowstate rescale` against Spark's offline repartitioning of the same state in RocksDB.

    python tests/benchmarks/rescale.py [--keys 4500000] [--rounds 3] [--memory 4g] [--numbers 6 2]
                                       [--providers cowstate rocksdb]

In each round a query counts and sums by key, on cowstate and on RocksDB (with changelogs). Both get
the same input: each key once, then 3% of the keys in each of ten batches. The query begins with two
partitions. Then the query is stopped and gets other numbers of partitions, one after the other.
Each change is in a JVM of its own (local[2]), which then runs a batch. A time covers only the call
of `checkpoint_change.apply` or `StreamingCheckpointManager.repartition`, in a session that has done
nothing before.

The benchmark checks the counts in the state against the rows read. A ratio is the median of the
rounds' ratios, because runs within one round see the same machine. The ratio should be at most a
third. `peak_rss_mb`: the peak RSS of the JVM. `state_mb`: the size of the state's files before the
change.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from provider_run.machine import SPARK_STATE, Machine, Stream
from provider_run.queries import Load, count_and_sum
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_state
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
from spark_state.spark.rescaling.rescale import Rescale
from spark_state.spark.stopped_query.checkpoint_change import apply
from tests.benchmarks.benchmark_script import QUIET, kill_session, parser_of, write_results

STATE_STORE = "spark.sql.streaming.stateStore"
PROVIDERS = {"cowstate": PROVIDER_CLASS, "rocksdb": f"{SPARK_STATE}.RocksDBStateStoreProvider"}
AT_MOST = 1 / 3
FIRST_NUMBER = 2
PREFILL_ROWS = 500_000
CHANGED_SHARE = 0.03
CHANGING_BATCHES = 10
Runs = dict[str, list[dict[int, dict[str, float]]]]


@dataclass(frozen=True, slots=True)
class RescaleStep:
    """The task of a process: fill the state if `number` is None, else change to `number`
    partitions."""

    provider: str
    keys: int
    memory: str
    folder: str
    number: int | None = None

    @property
    def checkpoint(self) -> Path:
        return Path(self.folder) / "checkpoint"

    @property
    def load(self) -> Load:
        return Load(self.keys, max(1, int(self.keys * CHANGED_SHARE)), PREFILL_ROWS, 0, 0)


def start_session(step: RescaleStep) -> SparkSession:
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.memory": step.memory,
        **QUIET,
        "spark.local.dir": str(Path(step.folder) / "scratch"),
        "spark.sql.shuffle.partitions": str(FIRST_NUMBER),
        f"{STATE_STORE}.maintenanceInterval": "2s",
        f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    }
    builder = SparkSession.builder.master("local[2]").appName("rescale").config(map=settings)
    spark_state.configure(builder)
    return builder.config(PROVIDER_KEY, PROVIDERS[step.provider]).getOrCreate()


def run_batches(spark: SparkSession, step: RescaleStep, rows: int, batches: int) -> dict[str, Any]:
    """Let the query run `batches` batches. Returns the progress of the last batch."""
    machine = Machine(spark)
    stream = Stream(machine, count_and_sum(spark, step.load, rows), "update", step.checkpoint)
    stream.wait_for(batches)
    stream.end()
    return stream.progress()[-1]


def fill(spark: SparkSession, step: RescaleStep) -> dict[str, float]:
    run_batches(spark, step, step.load.prefill_rows, step.load.prefill_batches)
    check_counts(spark, step, run_batches(spark, step, step.load.rows, CHANGING_BATCHES))
    return {}


def change(spark: SparkSession, step: RescaleStep) -> dict[str, float]:
    assert step.number is not None
    files = [file for file in (step.checkpoint / "state").rglob("*") if file.is_file()]
    state_mb = sum(file.stat().st_size for file in files) / 2**20
    manager = spark._streamingCheckpointManager
    location = str(step.checkpoint)
    began = time.monotonic()
    if step.provider == "cowstate":
        checkpoint = CheckpointFiles(spark, location)
        apply(Rescale(), checkpoint, step.number, lambda done, total: None, force=True)
    else:
        # The query was stopped after the last batch; its input comes again.
        manager.repartition(location, step.number, enforce_exactly_once_sink=False)
    seconds = time.monotonic() - began
    peak_rss_mb = Machine(spark).rss_mb("VmHWM")
    check_counts(spark, step, run_batches(spark, step, step.load.rows, 1))
    return {"seconds": seconds, "state_mb": state_mb, "peak_rss_mb": peak_rss_mb}


def check_counts(spark: SparkSession, step: RescaleStep, last: dict[str, Any]) -> None:
    """Check that the counts in the state sum up to the rows read, over all keys and partitions."""
    reader = spark.read.format("statestore").option("batchId", last["batchId"])
    state = reader.load(str(step.checkpoint))
    totals = state.agg(F.count("*"), F.sum("value.count"), F.max("partition_id")).collect()[0]
    rows = last["sources"][0]["endOffset"]["offset"]
    assert tuple(totals)[:2] == (step.keys, rows), f"{step}: {totals} of {rows} rows"
    assert totals[2] == (step.number or FIRST_NUMBER) - 1, f"{step}: {totals}"


def do(step: RescaleStep, result: Path) -> None:
    """Do a step in this process, write the result, and kill the JVM."""
    spark = start_session(step)
    measured = (fill if step.number is None else change)(spark, step)
    result.write_text(json.dumps(measured))
    kill_session(spark, Path(step.folder) / "scratch")


def run(step: RescaleStep) -> dict[str, float]:
    result = Path(step.folder) / "result.json"
    result.unlink(missing_ok=True)
    command = [sys.executable, __file__, "--step", json.dumps(asdict(step)), str(result)]
    subprocess.run(command, env={**os.environ, "PYSPARK_PYTHON": sys.executable}, check=True)
    return json.loads(result.read_text())


def run_provider(step: RescaleStep, numbers: list[int]) -> dict[int, dict[str, float]]:
    """The figures by number of partitions, from an empty folder."""
    Path(step.folder).mkdir()
    try:
        run(step)
        return {number: run(replace(step, number=number)) for number in numbers}
    finally:
        shutil.rmtree(step.folder)


def medians(runs: Runs, provider: str, number: int) -> dict[str, float]:
    of_number = [measured[number] for measured in runs[provider]]
    return {name: statistics.median(each[name] for each in of_number) for name in of_number[0]}


def report(runs: Runs, numbers: list[int]) -> dict[str, float]:
    """Print the measurements, and return the ratios by change of the number of partitions."""
    ratios = {}
    before = FIRST_NUMBER
    for number in numbers:
        print(f"\n{before} -> {number} partitions")
        for provider in runs:
            figures = medians(runs, provider, number)
            print(f"{provider:10}" + "".join(f"  {n} {v:.1f}" for n, v in figures.items()))
        if runs.keys() >= PROVIDERS.keys():
            pairs = zip(runs["cowstate"], runs["rocksdb"], strict=True)
            ratio = statistics.median(a[number]["seconds"] / b[number]["seconds"] for a, b in pairs)
            verdict = "met" if ratio <= AT_MOST else "MISSED"
            print(f"cowstate / rocksdb: {ratio:.2f}, at most {AT_MOST:.2f}: {verdict}")
            ratios[f"{before} -> {number}"] = ratio
        before = number
    return ratios


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__, "rescale", keys=4_500_000, rounds=3, memory="4g")
    parser.add_argument("--numbers", type=int, nargs="+", default=[6, 2])
    parser.add_argument("--providers", nargs="+", choices=list(PROVIDERS), default=list(PROVIDERS))
    parser.add_argument("--folder", type=Path, help="where checkpoints go; default: temporary")
    parser.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure, print, and write the JSON."""
    given = arguments()
    if given.step:
        do(RescaleStep(**json.loads(given.step[0])), Path(given.step[1]))
        return
    runs: Runs = {provider: [] for provider in given.providers}
    with tempfile.TemporaryDirectory(prefix="cowstate-benchmark-", dir=given.folder) as name:
        for number in range(given.rounds):
            in_turn = given.providers if number % 2 == 0 else given.providers[::-1]
            for provider in in_turn:
                print(f"round {number + 1}/{given.rounds}, {provider}", file=sys.stderr)
                step = RescaleStep(provider, given.keys, given.memory, str(Path(name) / "run"))
                runs[provider].append(run_provider(step, given.numbers))
    ratios = report(runs, given.numbers)
    settings = {"keys": given.keys, "memory": given.memory, "numbers": given.numbers}
    write_results(given.out, {**settings, "ratio": ratios, "runs": runs})


if __name__ == "__main__":
    main()
