"""Does one task of the benchmark: `python -m provider_run.process TASK_JSON RESULT_FILE`."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_state
from provider_run.machine import SPARK_STATE, Machine, Stream
from provider_run.queries import SCENARIOS, WARM_UP, Load
from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
from tests.benchmarks.benchmark_script import QUIET, kill_session

STATE_STORE = "spark.sql.streaming.stateStore"
PROVIDERS = {
    "hdfs": f"{SPARK_STATE}.HDFSBackedStateStoreProvider",
    "rocksdb": f"{SPARK_STATE}.RocksDBStateStoreProvider",
    "cowstate": PROVIDER_CLASS,
    "unsynced": PROVIDER_CLASS,
    "disk": PROVIDER_CLASS,
    "huge_pages": PROVIDER_CLASS,
    "spark_plans": PROVIDER_CLASS,
    "stored": PROVIDER_CLASS,
    "floor": f"{SPARK_STATE}.benchmark.EmptyStateStoreProvider",
    "answering": f"{SPARK_STATE}.benchmark.AnsweringStateStoreProvider",
}
FLOORS = ("floor", "answering")
SETTINGS = {
    "unsynced": {f"{STATE_STORE}.cowstate.fsync": "false"},
    "disk": {f"{STATE_STORE}.cowstate.backend": "disk"},
    "spark_plans": {f"{STATE_STORE}.cowstate.changePlans": "false"},
}
OURS = ("cowstate", "unsynced", "disk", "huge_pages", "spark_plans")
SNAPSHOT_FILES = {
    **dict.fromkeys(OURS, "*.snapshot.arrow"),
    "hdfs": "*.snapshot",
    "rocksdb": "*.zip",
}
SNAPSHOT_WAIT_SECONDS = 300
SOAK_SAMPLE_BATCHES = 10
# Spark's UI keeps a thousand jobs, whose memory would hide other growth.
KEPT_FOR_PAGES = {
    f"spark.{what}": "20"
    for what in ("ui.retainedJobs", "ui.retainedStages", "sql.ui.retainedExecutions")
}
CORES = 2


@dataclass(frozen=True, slots=True)
class Task:
    """The task of a process. `phase` is run, restart, snapshot or soak."""

    phase: str
    scenario: str
    provider: str
    scale: float
    memory: str
    folder: str
    floor_jar: str
    checks_state: bool = False
    with_snapshots: bool = True
    partitions: int = CORES
    warm: int | None = None

    @property
    def checkpoint(self) -> Path:
        return Path(self.folder) / "checkpoint"

    @property
    def store(self) -> Path:
        """The folder with the state of the provider `stored`."""
        return Path(self.folder) / "store"

    @property
    def load(self) -> Load:
        load = SCENARIOS[self.scenario].load.scaled(self.scale)
        return load if self.warm is None else replace(load, warm=self.warm)


def start_session(task: Task) -> SparkSession:
    opened = "java.management/sun.management", "jdk.management/com.sun.management.internal"
    java_options = [f"--add-opens={name}=ALL-UNNAMED" for name in opened]
    if task.provider == "huge_pages":
        java_options.append("-XX:+UseTransparentHugePages")
    # In scenarios with restarts, snapshots have a phase of their own.
    interval = {"snapshot": "2s", "soak": "10s"}.get(task.phase, "60s")
    if SCENARIOS[task.scenario].restarts and task.phase != "snapshot":
        interval = "3600s"
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.memory": task.memory,
        "spark.driver.extraJavaOptions": " ".join(java_options),
        **QUIET,
        "spark.local.dir": str(Path(task.folder) / "scratch"),
        "spark.sql.shuffle.partitions": str(task.partitions),
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        "spark.sql.streaming.minBatchesToRetain": "20" if task.phase == "soak" else "100",
        f"{STATE_STORE}.maintenanceInterval": interval,
        # The stop of maintenance holds a lock. A maintenance thread may wait for the lock until
        # this timeout.
        f"{STATE_STORE}.maintenanceShutdownTimeout": "5s",
        f"{STATE_STORE}.maintenanceForceShutdownTimeout": "5s",
        f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
        **SETTINGS.get(task.provider, {}),
        **(KEPT_FOR_PAGES if task.phase == "soak" else {}),
    }
    if task.provider == "stored":
        settings[f"{STATE_STORE}.cowstate.store"] = str(task.store)
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("provider")
    spark_state.configure(builder.config("spark.jars", task.floor_jar).config(map=settings))
    return builder.config(PROVIDER_KEY, PROVIDERS[task.provider]).getOrCreate()


def check_counts(spark: SparkSession, task: Task, last: dict[str, Any]) -> None:
    """Check that the counts in the state sum up to the rows read, and that all keys are there."""
    load = task.load
    keys = sum(operator["numRowsTotal"] for operator in last["stateOperators"])
    assert keys == load.keys, f"{task.provider} holds {keys} keys of {load.keys}"
    if task.checks_state and SCENARIOS[task.scenario].counts:
        rows = last["sources"][0]["endOffset"]["offset"]
        reader = spark.read.format("statestore").option("batchId", last["batchId"])
        state = reader.load(str(task.checkpoint))
        counted = state.agg(F.sum("value.count")).collect()[0][0]
        assert counted == rows, f"{task.provider} counted {counted} rows of {rows}"


def metric_of(progress: dict[str, Any], name: str) -> int:
    """A metric of cowstate, summed over all stores; 0 for other providers."""
    operators = progress["stateOperators"]
    return sum(o.get("customMetrics", {}).get(name, 0) for o in operators)


def answers_of(progress: Iterable[dict[str, Any]]) -> dict[str, list[Any]]:
    """Number and checksum of the output rows, by batch."""
    answers: dict[str, list[Any]] = {}
    for batch in progress:
        answer = batch.get("observedMetrics", {}).get("answers")
        if answer is not None:
            answers[str(batch["batchId"])] = [answer["rows"], answer["checksum"]]
    return answers


def run_batches(spark: SparkSession, task: Task) -> dict[str, Any]:
    """Fill the state, warm up, measure."""
    scenario, load, machine = SCENARIOS[task.scenario], task.load, Machine(spark)
    warm = load.warm
    if load.prefill_rows == load.rows and scenario.has_each_key:
        warm += load.prefill_batches
    elif scenario.has_each_key:
        df = scenario.build(spark, load, load.prefill_rows)
        filling = Stream(machine, df, scenario.mode, task.checkpoint)
        filling.wait_for(load.prefill_batches)
        filling.stop()
        machine.stores.stop()
    df = scenario.build(spark, load, load.rows)
    stream = Stream(machine, df, scenario.mode, task.checkpoint)
    stream.wait_for(warm)
    cpu_before, collections_before = machine.collector_ms()
    stream.wait_for(warm + load.measured)
    cpu_after, collections_after = machine.collector_ms()
    stream.stop()
    progress = stream.progress()
    batches = progress[warm : warm + load.measured]
    task_cpu = machine.task_cpu_ms(stream.run)
    result = {
        "wall_ms": statistics.median(b["durationMs"]["triggerExecution"] for b in batches),
        "task_cpu_ms": statistics.median(task_cpu[b["batchId"]] for b in batches),
        "gc_cpu_ms": (cpu_after - cpu_before) / len(batches),
        "gc_ms": (collections_after - collections_before) / len(batches),
        "live_heap_mb": machine.live_heap_mb(),
        "peak_rss_mb": machine.rss_mb("VmHWM"),
        "commit_ms": statistics.median(metric_of(b, "cowstateCommitMs") for b in batches),
        "walls_ms": [b["durationMs"]["triggerExecution"] for b in batches],
        "answers": answers_of(progress),
    }
    if scenario.has_each_key and task.provider not in FLOORS:
        check_counts(spark, task, progress[-1])
    return result


def run_first_batch(spark: SparkSession, task: Task) -> dict[str, Any]:
    scenario, machine = SCENARIOS[task.scenario], Machine(spark)
    small = scenario.build(spark, WARM_UP, WARM_UP.rows)
    warming = Stream(machine, small, scenario.mode, Path(task.folder) / "warm-up")
    warming.wait_for(WARM_UP.measured)
    warming.stop()
    machine.stores.stop()
    df = scenario.build(spark, task.load, task.load.rows)
    stream = Stream(machine, df, scenario.mode, task.checkpoint)
    stream.wait_for(1)
    stream.stop()
    shutil.rmtree(Path(task.folder) / "warm-up")
    first, *_, last = stream.progress() * 2
    if scenario.counts and task.provider not in FLOORS:
        check_counts(spark, task, last)
    figures = {"ms": first["durationMs"]["triggerExecution"]}
    # Each core loads a store at a time.
    load_ms = metric_of(first, "cowstateLoadMs") / CORES
    return figures | ({"load_ms": load_ms} if load_ms else {})


def run_until_snapshots(spark: SparkSession, task: Task) -> dict[str, Any]:
    """Continue the query until maintenance has written a snapshot of every partition."""
    scenario, machine = SCENARIOS[task.scenario], Machine(spark)
    df = scenario.build(spark, task.load, task.load.rows)
    stream = Stream(machine, df, scenario.mode, task.checkpoint)
    stream.wait_for(1)
    began = time.monotonic()
    stores = [task.checkpoint / "state" / "0" / str(number) for number in range(task.partitions)]
    while time.monotonic() - began < SNAPSHOT_WAIT_SECONDS and not all(
        any(store.glob(SNAPSHOT_FILES[task.provider])) for store in stores
    ):
        time.sleep(0.5)
    stream.wait_for(12)
    stream.stop()
    with_snapshot = sum(any(store.glob(SNAPSHOT_FILES[task.provider])) for store in stores)
    return {"partitions_with_snapshot": with_snapshot}


def run_soak(spark: SparkSession, task: Task) -> dict[str, Any]:
    """Sample heap, RSS, open files, sizes of mapped files and of kept files, and the gateway, every
    few batches."""
    scenario, load, machine = SCENARIOS[task.scenario], task.load, Machine(spark)
    df = scenario.build(spark, load, load.rows)
    stream = Stream(machine, df, scenario.mode, task.checkpoint)
    names = (
        *("heap_mb", "rss_mb", "open_files", "mapped_mb", "kept_mb"),
        *("gateway_rss_mb", "gateway_open_files"),
    )
    samples: dict[str, list[float]] = {name: [] for name in names}
    for batch in range(load.warm, load.warm + load.measured + 1, SOAK_SAMPLE_BATCHES):
        stream.wait_for(batch)
        samples["rss_mb"].append(machine.rss_mb("VmRSS"))
        samples["heap_mb"].append(machine.live_heap_mb())
        samples["open_files"].append(machine.open_files())
        samples["mapped_mb"].append(metric_of(stream.progress()[-1], "cowstateMappedBytes") / 2**20)
        kept = bytes_below(task.checkpoint) + bytes_below(task.store)
        samples["kept_mb"].append(kept / 2**20)
        gateways = machine.gateways()
        samples["gateway_rss_mb"].append(sum(g.memory_info().rss for g in gateways) / 2**20)
        samples["gateway_open_files"].append(float(sum(g.num_fds() for g in gateways)))
    stream.stop()
    progress = stream.progress()
    measured = progress[load.warm : load.warm + load.measured]
    samples["wall_ms"] = [float(b["durationMs"]["triggerExecution"]) for b in measured]
    if task.provider not in FLOORS:
        check_counts(spark, task, progress[-1])
    return {"samples": samples, "last_quarter_of_first": quarters(samples)}


def quarters(samples: dict[str, list[float]]) -> dict[str, float]:
    """The mean of the last quarter of the samples, divided by the mean of the first quarter."""
    shares = {}
    for name, values in samples.items():
        count = max(1, len(values) // 4)
        if any(values[:count]):
            shares[name] = statistics.fmean(values[-count:]) / statistics.fmean(values[:count])
    return shares


def bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


PHASES: dict[str, Callable[[SparkSession, Task], dict[str, Any]]] = {
    "run": run_batches,
    "restart": run_first_batch,
    "snapshot": run_until_snapshots,
    "soak": run_soak,
}


def main() -> None:
    task = Task(**json.loads(sys.argv[1]))
    spark = start_session(task)
    try:
        result = PHASES[task.phase](spark, task)
    finally:
        kill_session(spark, Path(task.folder) / "scratch")
    Path(sys.argv[2]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
