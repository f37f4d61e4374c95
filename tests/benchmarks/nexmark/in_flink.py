"""Runs queries of Nexmark on Flink: `python -m tests.benchmarks.nexmark.in_flink TASK OUT`.

The interpreter has PyFlink and psutil, and neither Spark nor cowstate. A cluster of one task
manager with two slots runs in the JVM of PyFlink. A checked run writes the changes of all answers
to files, and makes the answers of the changes. A timed run runs one query into `blackhole`.

Settings are those with which Nexmark's figures for Flink are usually made: mini-batches of up to 2
seconds, distinct aggregates in two steps, reuse of objects, and incremental checkpoints. Functions
of PyFlink have no mini-batches: Flink begins a mini-batch of a table with a watermark of the
processing time, and the functions' timers would fire by it.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway
from pyflink.table import StreamTableEnvironment, Table, TableDescriptor

from tests.benchmarks.nexmark.flink_processors import processed
from tests.benchmarks.nexmark.flink_queries import EVENTS, QUERIES, views
from tests.benchmarks.nexmark.meter import (
    PeakMemory,
    adopt_orphans,
    cpu_seconds,
    kill_processes_below,
)
from tests.benchmarks.nexmark.task import Task

CORES = 2
SETTINGS = {
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.max-concurrent-checkpoints": "1",
    "parallelism.default": str(CORES),
    "pipeline.object-reuse": "true",
    "python.executable": sys.executable,
    "python.client.executable": sys.executable,
    "python.execution-mode": "process",
    "python.fn-execution.bundle.size": "100000",
    "python.state.cache-size": "100000",
    "python.map-state.read-cache-size": "100000",
    "python.map-state.write-cache-size": "100000",
    "rest.bind-port": "0",
    "restart-strategy.type": "disable",
    "table.exec.mini-batch.allow-latency": "2s",
    "table.exec.mini-batch.size": "50000",
    "table.local-time-zone": "UTC",
    "table.optimizer.distinct-agg.split.enabled": "true",
    "taskmanager.memory.managed.size": "1g",
    "web.checkpoints.history": "100000",
}


class Cluster:
    """A cluster in PyFlink's JVM, which remembers the checkpoints of jobs that have ended."""

    def __init__(self, task: Task) -> None:
        folder = Path(task.folder)
        self._settings = Configuration()
        for key, value in {
            **SETTINGS,
            "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
            "execution.checkpointing.interval": f"{task.interval_ms}ms",
            "io.tmp.dirs": str(folder),
            "state.backend.rocksdb.localdir": str(folder / "rocksdb"),
            "state.backend.type": "rocksdb" if task.engine.endswith("rocksdb") else "hashmap",
            "table.exec.mini-batch.enabled": str(not task.is_on_pyflink).lower(),
        }.items():
            self._settings.set_string(key, value)
        self._jvm = get_gateway().jvm
        parts = self._jvm.org.apache.flink.runtime.minicluster
        builder = parts.MiniClusterConfiguration.Builder()
        builder = builder.setConfiguration(self._settings._j_configuration)
        self._cluster = parts.MiniCluster(builder.setNumSlotsPerTaskManager(CORES).build())
        self._cluster.start()
        self._url = self._cluster.getRestAddress().get().toString()

    def environment(self, events: str) -> StreamTableEnvironment:
        """A table environment with the events, whose jobs this cluster runs."""
        host, port = self._url.removeprefix("http://").split(":")
        settings = {"execution.target": "remote", "rest.address": host, "rest.port": port}
        for key, value in settings.items():
            self._settings.set_string(key, value)
        environments = self._jvm.org.apache.flink.streaming.api.environment
        of_java = environments.StreamExecutionEnvironment(self._settings._j_configuration)
        tables = StreamTableEnvironment.create(StreamExecutionEnvironment(of_java))
        for statement in (EVENTS.format(path=events), *views()):
            tables.execute_sql(statement)
        return tables

    def checkpoints(self, job: str) -> tuple[int, float]:
        """The number of a job's checkpoints, and the megabytes that the checkpoints wrote."""
        with urllib.request.urlopen(f"{self._url}/jobs/{job}/checkpoints") as response:
            history = json.load(response)["history"]
        done = [each for each in history if each["status"] == "COMPLETED"]
        return len(done), sum(each["checkpointed_size"] for each in done) / 2**20


def planned(tables: StreamTableEnvironment, task: Task, query: str) -> Table:
    if task.is_on_pyflink:
        return processed(tables, query)
    return tables.sql_query(QUERIES[query])


def run_timed(cluster: Cluster, task: Task) -> dict[str, Any]:
    """Run the query. Returns the figures."""
    memory = PeakMemory()
    memory.start()
    cpu, start = cpu_seconds(), time.perf_counter()
    table = planned(cluster.environment(task.events), task, task.queries[0])
    nothing = TableDescriptor.for_connector("blackhole").build()
    client = table.execute_insert(nothing).get_job_client()
    client.get_job_execution_result().result()
    figures = {
        "cpu_s": cpu_seconds() - cpu,
        "wall_s": time.perf_counter() - start,
        "peak_mb": memory.stop(),
    }
    count, megabytes = cluster.checkpoints(str(client.get_job_id()))
    return figures | {"checkpoints": count, "checkpoint_mb": megabytes}


def run_checked(cluster: Cluster, task: Task) -> dict[str, Any]:
    """Write the answers of all queries, in the order of their last changes, without rows that were
    taken back."""
    for query in task.queries:
        table = planned(cluster.environment(task.events), task, query)
        changes, output = Path(task.folder) / "changes" / query, task.output / query
        sink = TableDescriptor.for_connector("filesystem").format("debezium-json")
        sink = sink.option("debezium-json.timestamp-format.standard", "ISO-8601")
        table.execute_insert(sink.option("path", changes.as_uri()).build()).wait()
        kinds = table.get_schema().get_field_data_types()
        times = ["Timestamp" in type(kind).__name__ for kind in kinds]
        names = table.get_schema().get_field_names()
        answers = pa.table(dict(zip(names, _columns(_answers(changes), times), strict=True)))
        answers = answers.append_column("batch", pa.array(range(answers.num_rows)))
        output.mkdir(parents=True)
        pq.write_table(answers, output / "answers.parquet")
    return {"refused": {}}


def _answers(changes: Path) -> list[tuple[Any, ...]]:
    """The rows that files of changes leave. A change adds the row `after` and takes back the row
    `before`. Subtasks number their files."""
    counts: dict[tuple[Any, ...], int] = {}
    for file in sorted(changes.iterdir(), key=lambda file: int(file.name.rsplit("-", 1)[1])):
        for line in file.read_text().splitlines():
            change = json.loads(line)
            for part, difference in (("before", -1), ("after", 1)):
                if change[part] is not None:
                    row = tuple(change[part].values())
                    counts[row] = counts.pop(row, 0) + difference
    return [row for row, count in counts.items() for _ in range(count)]


def _columns(rows: list[tuple[Any, ...]], are_times: list[bool]) -> list[pa.Array]:
    """The columns of rows, in which times are texts."""
    return [
        pa.array([datetime.fromisoformat(text) for text in column] if is_time else column)
        for column, is_time in zip(zip(*rows, strict=True), are_times, strict=True)
    ]


def main() -> None:
    task = Task(**json.loads(sys.argv[1]))
    adopt_orphans()
    run = run_checked if task.kind == "checked" else run_timed
    try:
        result = run(Cluster(task), task)
    except Exception:
        # The text of a Java error is in PyFlink's JVM, which ends below.
        raise SystemExit(traceback.format_exc()) from None
    finally:
        # Otherwise Py4J logs at the end of Python, behind an error, that the JVM has ended.
        logging.disable()
        # PyFlink's JVM ends some seconds after Python, and would run beside the next engine.
        kill_processes_below()
    Path(sys.argv[2]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
