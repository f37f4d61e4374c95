"""A query in this process's JVM, measurements of the JVM, and a limit for the free memory."""

from __future__ import annotations

import json
import mmap
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession

SPARK_STATE = "org.apache.spark.sql.execution.streaming.state"
COLLECTOR_THREADS = ("GC Thread", "G1 ", "VM Thread")
GATEWAY = "spark_state.gateway.server"
_CHUNK = b"\1" * 2**20


class Machine:
    """Measurements of the JVM, from the JVM itself and from the operating system."""

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
        """CPU milliseconds of the collector's threads, and milliseconds of collections, until
        now."""
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
        """The process's VmRSS, or VmHWM, which is the peak of VmRSS."""
        status = (self._proc / "status").read_text()
        match = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
        return int(match[1]) / 1024

    def open_files(self) -> float:
        return float(len(list((self._proc / "fd").iterdir())))

    def gateways(self) -> list[psutil.Process]:
        """The processes that put the state's files into an object store."""
        running = psutil.process_iter(["ppid", "cmdline"])
        below = [process for process in running if str(process.info["ppid"]) == self._proc.name]
        return [process for process in below if GATEWAY in (process.info["cmdline"] or [])]

    def task_cpu_ms(self, run: str) -> dict[int, float]:
        """CPU milliseconds of the tasks of each batch in a query's run."""
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
        """Wait until `batches` batches of this run are done."""
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
        """Stop maintenance, then the query. Maintenance would unload the state, so the state stays
        loaded."""
        self._machine.stores.stopMaintenanceTask()
        self.end()

    def end(self) -> None:
        """Stop the query. Maintenance goes on, and unloads the state in time. A stop in the middle
        of maintenance could make Spark wait for minutes."""
        self._query.stop()
        self._machine.wait_for_tasks()


@contextmanager
def free_memory_of(gib: float | None) -> Iterator[None]:
    """Hold memory so that about `gib` GiB are available to other processes. None holds nothing.

    Held pages were written to, so a system without swap cannot take back the pages. Raises
    ValueError if less is available already, or if the system has swap.
    """
    if gib is None:
        yield
        return
    if psutil.swap_memory().total:
        raise ValueError("--free-memory needs a system without swap (`swapoff -a`)")
    available = psutil.virtual_memory().available
    held_bytes = int(available - gib * 2**30)
    if held_bytes <= 0:
        raise ValueError(f"--free-memory {gib}: only {available / 2**30:.1f} GiB are available")
    with mmap.mmap(-1, held_bytes) as held:
        while held.tell() + len(_CHUNK) <= held_bytes:
            held.write(_CHUNK)
        yield
