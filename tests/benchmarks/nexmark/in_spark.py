"""Runs queries of Nexmark on Spark: `python -m tests.benchmarks.nexmark.in_spark TASK OUT`.

A run of kind `expected` computes the answers of all queries on a batch, and a run of kind `checked`
the answers of an engine; both write them to parquet files. A run of kind `timed` runs one query,
and writes to `noop`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StatefulProcessor

import spark_state
from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
from tests.benchmarks.benchmark_script import QUIET, STATE_PACKAGE, kill_session
from tests.benchmarks.nexmark.meter import PeakMemory, adopt_orphans, cpu_seconds
from tests.benchmarks.nexmark.processors import PROCESSED
from tests.benchmarks.nexmark.queries import QUERIES, Events
from tests.benchmarks.nexmark.task import Task

STATE_STORE = "spark.sql.streaming.stateStore"
CORES = 2
PROVIDERS = {
    "cowstate": PROVIDER_CLASS,
    "disk": PROVIDER_CLASS,
    "rocksdb": f"{STATE_PACKAGE}.RocksDBStateStoreProvider",
    "hdfs": f"{STATE_PACKAGE}.HDFSBackedStateStoreProvider",
    "floor": f"{STATE_PACKAGE}.benchmark.EmptyStateStoreProvider",
}
PROCESSOR_ENGINES = {"python_heap": "heap", "python_rocksdb": "rocksdb", "row_api": ""}
"""Engines that run a processor, with the backend of cowstate's operator."""


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
        "spark.cowstate.minEpochsToRetain": "10000",
        "spark.cowstate.minEpochsForSnapshot": "10000",
        "spark.cowstate.parallelism": str(CORES),
        "spark.cowstate.store": str(Path(task.folder) / "store"),
        "spark.cowstate.backend": PROCESSOR_ENGINES.get(task.engine) or "heap",
    }
    if task.engine == "disk":
        settings[f"{STATE_STORE}.cowstate.backend"] = "disk"
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("nexmark")
    spark_state.configure(builder.config("spark.jars", task.floor_jar).config(map=settings))
    provider = PROVIDERS.get(task.engine, PROVIDERS["rocksdb"])
    return builder.config(PROVIDER_KEY, provider).getOrCreate()


def planned(events: Events, engine: str, query: str) -> tuple[DataFrame, str]:
    """The plan of a query for an engine, and its output mode."""
    if engine not in PROCESSOR_ENGINES:
        return QUERIES[query].build(events), QUERIES[query].mode
    processed = PROCESSED[query]
    transform = _on_spark if engine == "row_api" else spark_state.transform_with_state
    return processed.build(events, transform), processed.mode


def _on_spark(
    grouped: Any, processor: StatefulProcessor, schema: str, mode: str, time_mode: str
) -> DataFrame:
    df: DataFrame = grouped.transformWithState(processor, schema, mode, time_mode)
    return df


def run_query(spark: SparkSession, task: Task, query: str) -> dict[str, Any]:
    """Run a query over all files, a file a batch. Returns the figures."""
    schema = spark.read.parquet(task.events).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    df, mode = planned(Events(reader.parquet(task.events)), task.engine, query)
    checkpoint, output = Path(task.folder) / "checkpoint" / query, task.output / query
    writer = df.writeStream.outputMode(mode).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(checkpoint))
    # After foreachBatch Spark asks whether each store has committed, and the floor never commits.
    if task.kind == "checked" and task.engine != "floor":
        writer = writer.foreachBatch(
            lambda batch, number: batch.write.parquet(str(output / f"batch={number}"))
        )
    else:
        writer = writer.format("noop")
    memory = PeakMemory()
    memory.start()
    cpu, start = cpu_seconds(), time.perf_counter()
    stream = writer.start()
    stream.awaitTermination()
    figures: dict[str, Any] = {
        "cpu_s": cpu_seconds() - cpu,
        "wall_s": time.perf_counter() - start,
        "peak_mb": memory.stop(),
    }
    state_files = checkpoint / "state", Path(task.folder) / "store"
    files = [path for folder in state_files for path in folder.rglob("*") if path.is_file()]
    progress = [batch for batch in stream.recentProgress if batch["numInputRows"]]
    batches = [batch["durationMs"]["triggerExecution"] / 1000 for batch in progress]
    checkpoint_mb = sum(path.stat().st_size for path in files) / 2**20
    operators = [operator for batch in progress for operator in batch["stateOperators"]]
    changed = sum(each["numRowsUpdated"] + each["numRowsRemoved"] for each in operators)
    return figures | {
        "batches_s": batches,
        "checkpoint_mb": checkpoint_mb,
        "changed_rows": changed,
    }


def run_checked(spark: SparkSession, task: Task) -> dict[str, Any]:
    """Run all queries. Returns Spark's reason for each query that Spark refuses."""
    refused = {}
    for query in task.queries:
        try:
            run_query(spark, task, query)
        except AnalysisException as refusal:
            refused[query] = str(refusal).splitlines()[0]
    return {"refused": refused}


def write_expected(spark: SparkSession, task: Task) -> dict[str, Any]:
    """Write the answers of all queries on a batch."""
    events = Events(spark.read.parquet(task.events))
    for query in task.queries:
        QUERIES[query].build(events).write.parquet(str(task.output / query))
    return {}


def main() -> None:
    task = Task(**json.loads(sys.argv[1]))
    adopt_orphans()
    spark = start_session(task)
    try:
        if task.kind == "expected":
            result = write_expected(spark, task)
        elif task.kind == "checked":
            result = run_checked(spark, task)
        else:
            result = run_query(spark, task, task.queries[0])
    finally:
        kill_session(spark, Path(task.folder) / "scratch")
    Path(sys.argv[2]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
