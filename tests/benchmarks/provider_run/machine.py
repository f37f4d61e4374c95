"""A query in this process's JVM, and what the JVM and its operating system measure."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession

SPARK_STATE = "org.apache.spark.sql.execution.streaming.state"
COLLECTOR_THREADS = ("GC Thread", "G1 ", "VM Thread")
GATEWAY = "spark_state.gateway.server"


class Machine:
    """What the JVM and its operating system know of it."""

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        gateway: Any = context._gateway
        self._jvm = gateway.jvm
        self._context: Any = context._jsc.sc()
        self._status = context.statusTracker()
        self._doubles = gateway.new_array(gateway.jvm.double, 0)
        self._proc = Path("/proc") / str(gateway.proc.pid)
        self.stores: Any = getattr(gateway.jvm, SPARK_STATE).StateStore

    def collector_ms(self) -> tuple[float, float]:
        """CPU of the collector's threads, and the time of its collections, until now."""
        ticks = 0
        for thread in (self._proc / "task").glob("*/stat"):
            name, fields = thread.read_text().split("(", 1)[1].rsplit(")", 1)
            if name.startswith(COLLECTOR_THREADS):
                ticks += sum(map(int, fields.split()[11:13]))
        beans = self._jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
        collections = sum(bean.getCollectionTime() for bean in beans)
        return ticks * 1000 / os.sysconf("SC_CLK_TCK"), float(collections)

    def live_heap_mb(self) -> float:
        for _ in range(2):
            self._jvm.java.lang.System.gc()
        bean = self._jvm.java.lang.management.ManagementFactory.getMemoryMXBean()
        return float(bean.getHeapMemoryUsage().getUsed()) / 2**20

    def rss_mb(self, name: str) -> float:
        """VmRSS or VmHWM, its peak."""
        status = (self._proc / "status").read_text()
        match = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
        assert match is not None
        return int(match[1]) / 1024

    def open_files(self) -> float:
        return float(len(list((self._proc / "fd").iterdir())))

    def gateways(self) -> list[psutil.Process]:
        """The processes that put the state's files into an object store."""
        running = psutil.process_iter(["ppid", "cmdline"])
        below = [process for process in running if str(process.info["ppid"]) == self._proc.name]
        return [process for process in below if GATEWAY in (process.info["cmdline"] or [])]

    def task_cpu_ms(self, run: str) -> dict[int, float]:
        """CPU of the tasks of each batch of a run of a query."""
        self._context.listenerBus().waitUntilEmpty()
        stages = self._context.statusStore().stageList(None, False, False, self._doubles, None)
        cpu_by_batch: dict[int, float] = {}
        for number in range(stages.size()):
            stage = stages.apply(number)
            text = str(stage.description())
            batch = re.search(r"batch = (\d+)", text)
            if run in text and batch is not None:
                cpu = stage.executorCpuTime() / 1e6
                cpu_by_batch[int(batch[1])] = cpu_by_batch.get(int(batch[1]), 0.0) + cpu
        return cpu_by_batch

    def wait_for_tasks(self) -> None:
        while self._status.getActiveStageIds():
            time.sleep(0.05)


class Stream:
    """A run of a query."""

    def __init__(self, machine: Machine, df: DataFrame, mode: str, checkpoint: Path) -> None:
        self._machine = machine
        writer = df.writeStream.format("noop").outputMode(mode)
        self._query = writer.option("checkpointLocation", str(checkpoint)).start()
        self._jquery: Any = self._query._jsq
        self._first: int | None = None

    @property
    def run(self) -> str:
        return str(self._query.runId)

    def wait_for(self, batches: int) -> None:
        """Until so many batches of this run are done."""
        while (
            self._first is None or self._jquery.lastProgress().batchId() < self._first + batches - 1
        ):
            failure = self._query.exception()
            if failure is not None:
                raise failure
            if self._first is None and self._jquery.lastProgress() is not None:
                self._first = int(self.progress()[0]["batchId"])
            time.sleep(0.01)

    def progress(self) -> list[dict[str, Any]]:
        return [json.loads(progress.json) for progress in self._query.recentProgress]

    def stop(self) -> None:
        """The state stays loaded: maintenance, which would unload it, ends too."""
        self._machine.stores.stopMaintenanceTask()
        self.end()

    def end(self) -> None:
        """Stop the query. Maintenance goes on, and unloads the state in time: Spark may wait for
        minutes if it is ended in the middle of its work."""
        self._query.stop()
        self._machine.wait_for_tasks()
