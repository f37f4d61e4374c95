"""Runs one query of Nexmark on one provider: `python -m tests.benchmarks.nexmark.process TASK OUT`.

A checked run writes its output to parquet files and compares the output with the same plan on a
batch. A timed run writes to `noop`.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_state
from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
from tests.benchmarks.benchmark_script import QUIET, STATE_PACKAGE, kill_session
from tests.benchmarks.nexmark.queries import QUERIES, Events, Query

STATE_STORE = "spark.sql.streaming.stateStore"
CORES = 2
PROVIDERS = {
    "cowstate": PROVIDER_CLASS,
    "disk": PROVIDER_CLASS,
    "rocksdb": f"{STATE_PACKAGE}.RocksDBStateStoreProvider",
    "hdfs": f"{STATE_PACKAGE}.HDFSBackedStateStoreProvider",
    "floor": f"{STATE_PACKAGE}.benchmark.EmptyStateStoreProvider",
}


@dataclass(frozen=True, slots=True)
class Task:
    """A run. `folder` belongs to the run, `events` has the files with the events."""

    query: str
    provider: str
    events: str
    folder: str
    floor_jar: str
    is_checked: bool

    @property
    def output(self) -> Path:
        return Path(self.folder) / "output"


def start_session(task: Task) -> SparkSession:
    settings: dict[str, bool | float | int | str | None] = {
        **QUIET,
        "spark.driver.memory": "6g",
        "spark.local.dir": str(Path(task.folder) / "scratch"),
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.minBatchesToRetain": "10000",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        # All state files are changelogs, so that their bytes can be compared.
        f"{STATE_STORE}.maintenanceInterval": "3600s",
        f"{STATE_STORE}.minDeltasForSnapshot": "10000",
        f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    }
    if task.provider == "disk":
        settings[f"{STATE_STORE}.cowstate.backend"] = "disk"
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("nexmark")
    spark_state.configure(builder.config("spark.jars", task.floor_jar).config(map=settings))
    return builder.config(PROVIDER_KEY, PROVIDERS[task.provider]).getOrCreate()


def cpu_seconds() -> float:
    """The CPU seconds of this process and of the processes below."""
    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def peak_memory_mb() -> float:
    """The peak of the JVM's resident memory."""
    (jvm,) = [p for p in psutil.Process().children(recursive=True) if p.name() == "java"]
    lines = Path(f"/proc/{jvm.pid}/status").read_text().splitlines()
    (peak,) = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return int(peak) / 1024


def run_query(spark: SparkSession, task: Task) -> dict[str, Any]:
    """Run the query over all files, a file a batch. Returns the figures."""
    query, schema = QUERIES[task.query], spark.read.parquet(task.events).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    writer = query.build(Events(reader.parquet(task.events))).writeStream.outputMode(query.mode)
    checkpoint = Path(task.folder) / "checkpoint"
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    if task.is_checked:
        writer = writer.foreachBatch(
            lambda batch, number: batch.write.parquet(str(task.output / f"batch={number}"))
        )
    else:
        writer = writer.format("noop")
    cpu, start = cpu_seconds(), time.perf_counter()
    stream = writer.start()
    stream.awaitTermination()
    files = [path.stat() for path in (checkpoint / "state").rglob("*") if path.is_file()]
    progress = [batch for batch in stream.recentProgress if batch["numInputRows"]]
    return {
        "cpu_s": cpu_seconds() - cpu,
        "wall_s": time.perf_counter() - start,
        "batches_s": [batch["durationMs"]["triggerExecution"] / 1000 for batch in progress],
        "state_mb": sum(file.st_size for file in files) / 2**20,
        "state_rows": sum(o["numRowsTotal"] for o in progress[-1]["stateOperators"]),
        "peak_rss_mb": peak_memory_mb(),
    }


def check_output(spark: SparkSession, task: Task) -> int:
    """Compare the output of a checked run with the plan on a batch. Returns the number of compared
    rows. Raises AssertionError."""
    query = QUERIES[task.query]
    # Spark 4.3 would push a filter of a session's start below the sessions, and cut them.
    expected = query.build(Events(spark.read.parquet(task.events))).localCheckpoint()
    answered = _that_count(spark.read.parquet(str(task.output)), query).select(*expected.columns)
    bound = next((name for name in ("end", "start") if name in expected.columns), None)
    if query.mode == "append" and bound:
        # The newest windows are still open on the stream.
        expected = expected.where(F.col(bound) <= answered.agg(F.max(bound)).first()[0])
    rows = answered.count()
    assert rows, f"{task.query} on {task.provider} has no output"
    wrong = answered.exceptAll(expected).count()
    missing = expected.exceptAll(answered).count()
    assert not wrong, f"{task.query} on {task.provider}: {wrong} of {rows} rows are wrong"
    assert not missing, f"{task.query} on {task.provider}: {missing} rows are missing"
    return rows


def _that_count(output: DataFrame, query: Query) -> DataFrame:
    if not query.keys:
        return output
    rest = [name for name in output.columns if name not in (*query.keys, "batch")]
    last = F.max_by(F.struct(*rest), "batch").alias("last")
    return output.groupBy(*query.keys).agg(last).select(*query.keys, "last.*")


def main() -> None:
    task = Task(**json.loads(sys.argv[1]))
    spark = start_session(task)
    try:
        result = run_query(spark, task)
        if task.is_checked:
            result["compared_rows"] = check_output(spark, task)
    finally:
        kill_session(spark, Path(task.folder) / "scratch")
    Path(sys.argv[2]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
