"""Nexmark on Spark's state store providers, on Python processors, and on Flink.

    python -m tests.benchmarks.nexmark [--queries q3 q4 …] [--engines cowstate rocksdb …]
                                       [--events 10000000] [--files 20] [--rounds 3] [--seed 1]
                                       [--checked 200000] [--interval-ms 1000]
                                       [--flink-python PATH] [--kept FOLDER] [--out FILE]
                                       [--continued FILE] [--plot FILE]

Each query runs on each engine in turn, in a process with a JVM of its own, on two cores. Before any
time counts, each engine but the floor answers each query over the first `--checked` events, and the
answers are compared with those of Spark on a batch. The timed runs read `--events` events from
parquet files. On Spark a file is a batch, of `--files`; Flink reads the same events from two files,
one for each reader. The output goes to `noop` or `blackhole`. A query that an engine cannot run is
left out, and the reason is printed.

    cowstate, disk     Spark's SQL on cowstate's provider: state on the heap, and in mapped files
    rocksdb, hdfs      Spark's SQL on Spark's providers; RocksDB with changelog checkpointing
    floor              a provider that keeps nothing: the cost of all else. Its answers are wrong,
                       and a join with an empty state does less than with any store
    flink_heap, flink_rocksdb
                       Flink's SQL, with incremental checkpoints
    python_heap, python_rocksdb
                       a StatefulProcessor on cowstate's operator
    row_api            the same processor on Spark's transformWithState (RocksDB)
    pyflink_heap, pyflink_rocksdb
                       the same as a KeyedProcessFunction of PyFlink, in process mode

Flink begins a checkpoint as often as cowstate commits a batch in the same round, or each
`--interval-ms` where cowstate does not run. Flink is an extra: `--flink-python` names an
interpreter of an environment that has it (`pip install apache-flink==2.3.0 psutil`); an engine that
is not there is left out, with a message. The jar for parquet files comes from Maven Central.

The benchmark prints events a second and core, CPU seconds of all processes and seconds (both from
the start of the query, not of the JVM), the megabytes that checkpoints wrote (Spark: changelogs
only), and the peak of the resident memory of all processes, as the medians of the rounds; and the
ratio to cowstate of events a second and core. `--kept` names a folder that keeps the events for
later runs. `--continued` names the `--out` of an earlier run with the same events: its rounds count
as well, and its answers are not compared again. `--plot` names a file for a chart of the ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from cowstate.pinned_jars import pinned_jars
from spark_state.jvm.scala_compiler import compile_jar, spark_jars
from tests.benchmarks.benchmark_script import parser_of, write_results
from tests.benchmarks.nexmark.answers import WrongAnswersError, compare
from tests.benchmarks.nexmark.events import write_events, write_for_readers
from tests.benchmarks.nexmark.in_spark import CORES
from tests.benchmarks.nexmark.processors import PROCESSED
from tests.benchmarks.nexmark.queries import QUERIES
from tests.benchmarks.nexmark.report import GROUPS, Results, plot, reasons, table
from tests.benchmarks.nexmark.task import Task

ROOT = Path(__file__).resolve().parents[3]
FLOOR = ROOT / "tests" / "benchmarks" / "scala" / "EmptyStateStoreProvider.scala"
FLINK_LOCK = Path(__file__).resolve().parent / "flink.sha256"
FLINK_VERSION = "2.3.0"
ENGINES = {engine: peer for peer, engines in GROUPS.items() for engine in engines}
"""The engines, each with the engine that it is compared with."""
CHECKED_FILES = 5
NO_PROCESSOR = "a join, or a rank, which is not natural as a processor of a key"

Reasons = dict[str, dict[str, str]]
"""Why an engine does not run a query, by engine and query."""


def run(task: Task, flink_python: str) -> dict[str, Any]:
    """Run a task in a process of its own. Raises SystemExit if the process fails."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    python, module = sys.executable, "in_spark"
    if task.is_on_flink:
        python, module = flink_python, "in_flink"
        hadoop = spark_jars().glob("hadoop-client-*.jar")
        jars = [*pinned_jars(FLINK_LOCK, ROOT / "build" / "flink"), *hadoop]
        environment["HADOOP_CLASSPATH"] = os.pathsep.join(map(str, jars))
        environment["JVM_ARGS"] = "-Xmx6g"
        environment["FLINK_LOG_DIR"] = task.folder
    result = Path(task.folder) / "result.json"
    command = [python, "-m", f"tests.benchmarks.nexmark.{module}"]
    done = subprocess.run(
        [*command, json.dumps(asdict(task)), str(result)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not result.exists():
        raise SystemExit(f"{', '.join(task.queries)} on {task.engine}:\n{done.stderr[-4000:]}")
    figures: dict[str, Any] = json.loads(result.read_text())
    return figures


class Benchmark:
    """The runs of the benchmark, over the events in a folder."""

    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        self._given = given
        kept = given.kept or folder
        self._floor_jar = folder / "floor.jar"
        compile_jar([FLOOR], self._floor_jar)
        self._timed = self._events(kept / f"{given.events}", given.events, given.files)
        self._checked = self._events(
            kept / f"{given.checked}-checked", given.checked, CHECKED_FILES
        )
        self.results: Results = {}
        self.reasons: Reasons = {}

    def start(self) -> None:
        """Take the results of the earlier run, or compare answers if there is no earlier run.
        Raises SystemExit for an engine without compared answers."""
        if self._given.continued is None:
            self.check()
        else:
            earlier = json.loads(self._given.continued.read_text())
            self.results, self.reasons = earlier["results"], earlier["reasons"]
            unchecked = [engine for engine in self._given.engines if engine not in self.reasons]
            if unchecked:
                raise SystemExit(
                    f"{self._given.continued} has no answers of {', '.join(unchecked)}"
                )

    def check(self) -> None:
        """Compare the answers of all engines with a batch. Raises SystemExit for a wrong answer."""
        with self._task("expected", "cowstate", self._given.queries) as expected:
            run(expected, self._given.flink_python)
            for engine in self._given.engines:
                self._check_engine(engine, expected.output)

    def _check_engine(self, engine: str, expected: Path) -> None:
        reasons_of_engine: dict[str, str] = {}
        queries = self._given.queries
        if ENGINES[engine] == "python_heap":
            reasons_of_engine = dict.fromkeys(set(queries) - {*PROCESSED}, NO_PROCESSOR)
        with self._task(
            "checked", engine, [q for q in queries if q not in reasons_of_engine]
        ) as task:
            reasons_of_engine |= run(task, self._given.flink_python)["refused"]
            for query in (q for q in task.queries if q not in reasons_of_engine):
                if engine != "floor":
                    rows = _compared(query, expected, task)
                    print(f"{query:4} {engine:15} {rows:,} rows are those of a batch", flush=True)
        self.reasons[engine] = {q: reasons_of_engine[q] for q in queries if q in reasons_of_engine}

    def round(self, query: str) -> None:
        """Add a timed run of each engine to the results."""
        by_engine = self.results.setdefault(query, {})
        for engine in self._given.engines:
            if query in self.reasons[engine]:
                continue
            peer = by_engine.get(ENGINES[engine])
            with self._task("timed", engine, [query]) as task:
                if peer:
                    batch_ms = int(statistics.median(peer[-1]["batches_s"]) * 1000)
                    task = replace(task, interval_ms=batch_ms)
                figures = run(task, self._given.flink_python)
            by_engine.setdefault(engine, []).append(figures)
            shown = ", ".join(f"{name} {figures[name]:.1f}" for name in ("cpu_s", "wall_s"))
            print(f"{query:4} {engine:15} {shown}", flush=True)

    @contextmanager
    def _task(self, kind: str, engine: str, queries: list[str]) -> Iterator[Task]:
        events = self._timed if kind == "timed" else self._checked
        with tempfile.TemporaryDirectory(
            prefix="cowstate-nexmark-", ignore_cleanup_errors=True
        ) as folder:
            task = Task(
                kind, engine, queries, "", folder, str(self._floor_jar), self._given.interval_ms
            )
            yield replace(task, events=str(_for_flink(events) if task.is_on_flink else events))

    def _events(self, folder: Path, events: int, files: int) -> Path:
        write_events(folder, events, files, self._given.seed)
        write_for_readers(folder, _for_flink(folder), CORES)
        return folder


def _for_flink(events: Path) -> Path:
    return events.with_name(f"{events.name}-flink")


def _compared(query: str, expected: Path, task: Task) -> int:
    """The number of rows of a query's answers. Raises SystemExit if they are wrong."""
    shape = QUERIES[query]
    of_batch, answered = (
        ds.dataset(folder / query, partitioning="hive").to_table()
        for folder in (expected, task.output)
    )
    try:
        return compare(of_batch, answered, shape.keys, has_open=shape.mode == "append")
    except WrongAnswersError as error:
        raise SystemExit(f"{query} on {task.engine}: {error}") from error


def is_there(engine: str, python: str) -> bool:
    if "flink" not in engine:
        return True
    asked = "import psutil, pyflink.version; print(pyflink.version.__version__)"
    found = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
    if found.stdout.strip() == FLINK_VERSION:
        return True
    print(
        f"{engine} is left out: {python} does not have Flink {FLINK_VERSION} (--flink-python; "
        f"pip install apache-flink=={FLINK_VERSION} psutil)"
    )
    return False


def main() -> None:
    defaults = {"events": 10_000_000, "files": 20, "rounds": 3, "seed": 1, "checked": 200_000}
    parser = parser_of(__doc__, "nexmark", **defaults, interval_ms=1000)
    parser.add_argument("--queries", nargs="*", default=[*QUERIES], choices=[*QUERIES])
    parser.add_argument("--engines", nargs="*", default=[*ENGINES], choices=[*ENGINES])
    parser.add_argument("--flink-python", default=sys.executable)
    parser.add_argument("--kept", type=Path)
    parser.add_argument("--continued", type=Path, help="results of an earlier run")
    parser.add_argument("--plot", type=Path, help="a file for a plot")
    given = parser.parse_args()
    asked = [engine for engine in ENGINES if engine in given.engines]
    given.engines = [engine for engine in asked if is_there(engine, given.flink_python)]
    with tempfile.TemporaryDirectory(prefix="cowstate-nexmark-") as folder:
        benchmark = Benchmark(given, Path(folder))
        benchmark.start()
        print(reasons(benchmark.reasons), flush=True)
        try:
            for _ in range(given.rounds):
                for query in given.queries:
                    benchmark.round(query)
        finally:
            recorded = {"results": benchmark.results, "reasons": benchmark.reasons}
            write_results(given.out, recorded)
    print(table(benchmark.results, given.events))
    if given.plot is not None:
        plot(benchmark.results, given.plot)


if __name__ == "__main__":
    main()
