"""cowstate's operator against Spark's own and against a plan without state, in one run.

    python tests/benchmarks/python_state.py [--rounds 3] [--rows 50000] [--cases …] [--out FILE]

Three queries read the same files: `identity` (mapInArrow that hands rows on: the floor), `cowstate`
(transform_with_state) and `row_api` (Spark's transformWithState, RocksDB provider with changelog
checkpointing). The cases `pandas44k` and `pandas1000` have the pandas API instead, that is
transform_with_state_in_pandas and `pandas_api`, Spark's transformWithStateInPandas; they run if
`--cases` names them. In every round each query runs one micro-batch of every case after one to warm
up, alternating, so that all see the same machine. Per batch it measures wall seconds (from the
file's arrival to its commit) and CPU seconds of all processes (JVM, Python workers, state hosts),
and prints medians and ratios. The state calls are timed in this process, on 44,000 keys.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

import spark_state
from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.processor.rows import STATE_FORMS
from spark_state.state_descriptor import StateDescriptor

PARALLELISM = 2
WIDE_COLUMNS = 20
OUTPUT = "key string, count bigint"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class CountRows(StatefulProcessor):
    """One exists, get and update a key; emits the count."""

    def init(self, handle: Any) -> None:
        self._count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        count = self._count.get()[0] if self._count.exists() else 0
        for _ in rows:
            count += 1
        self._count.update((count,))
        yield Row(key=key[0], count=count)

    def close(self) -> None:
        pass


class CountRowsOfFrames(CountRows):
    """The same in the pandas API."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        count = self._count.get()[0] if self._count.exists() else 0
        for frame in rows:
            count += len(frame)
        self._count.update((count,))
        yield pd.DataFrame({"key": [key[0]], "count": [count]})


@dataclass(frozen=True, slots=True)
class Case:
    """Rows of one micro-batch: `keys` = 0 draws about 44,000 distinct keys from a large range.

    `peer`: the plan of Spark's that cowstate's is measured against.
    """

    name: str
    rows: int
    keys: int
    columns: int
    peer: str = "row_api"

    @property
    def plans(self) -> tuple[str, str, str]:
        """The floor, cowstate and its peer."""
        return "identity", "cowstate_pandas" if self.peer == "pandas_api" else "cowstate", self.peer


@dataclass(slots=True)
class Measured:
    """Seconds of each measured batch."""

    wall: list[float]
    cpu: list[float]


def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The floor: rows to Python and back."""
    for batch in batches:
        count = pa.array([1] * batch.num_rows, pa.int64())
        yield pa.RecordBatch.from_arrays([batch.column("key"), count], ["key", "count"])


def plan_identity(df: DataFrame) -> DataFrame:
    return df.repartition(PARALLELISM, "key").mapInArrow(identity, OUTPUT)


def plan_cowstate(df: DataFrame) -> DataFrame:
    return spark_state.transform_with_state(
        df.groupBy("key"), CountRows(), OUTPUT, output_mode="update", time_mode="None"
    )


def plan_row_api(df: DataFrame) -> DataFrame:
    return df.groupBy("key").transformWithState(CountRows(), OUTPUT, "update", "None")


def plan_cowstate_pandas(df: DataFrame) -> DataFrame:
    return spark_state.transform_with_state_in_pandas(
        df.groupBy("key"), CountRowsOfFrames(), OUTPUT, output_mode="update", time_mode="None"
    )


def plan_pandas_api(df: DataFrame) -> DataFrame:
    grouped = df.groupBy("key")
    return grouped.transformWithStateInPandas(CountRowsOfFrames(), OUTPUT, "update", "None")


PLANS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "identity": plan_identity,
    "cowstate": plan_cowstate,
    "row_api": plan_row_api,
    "cowstate_pandas": plan_cowstate_pandas,
    "pandas_api": plan_pandas_api,
}
ASKED_FOR = ("pandas44k", "pandas1000")


def batch_of(case: Case, seed: int) -> pa.Table:
    chance = random.Random(seed)
    # 50,000 draws from 190,000 keys hold about 44,000 distinct ones.
    keys = case.keys or int(case.rows * 3.8)
    columns: dict[str, pa.Array] = {
        "key": pa.array([f"key{chance.randrange(keys):07d}" for _ in range(case.rows)])
    }
    for index in range(case.columns):
        values = [chance.random() for _ in range(case.rows)]
        columns[f"v{index}"] = pa.array(values if index % 2 else [str(v) for v in values])
    return pa.table(columns)


def cpu_seconds(root: psutil.Process) -> float:
    """User and system seconds of the JVM, its workers and the state hosts, dead ones included."""
    processes = {process.pid: process for process in root.children(recursive=True)}
    for process in psutil.process_iter():
        try:
            if "spark_state.host.server" in process.cmdline():
                processes[process.pid] = process
        except psutil.Error:
            continue
    total = 0.0
    for process in processes.values():
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


class Contender:
    """One query over its own folder of files."""

    def __init__(self, spark: SparkSession, folder: Path, case: Case, plan: str) -> None:
        self._spark = spark
        self._folder = folder / case.name / plan
        self._input = self._folder / "input"
        self._input.mkdir(parents=True)
        self._plan = PLANS[plan]
        self._files = 0
        first = self._folder / "schema.parquet"
        pq.write_table(batch_of(case, 0).slice(0, 1), first)
        self._schema = spark.read.parquet(str(first)).schema

    def run(self, warm: pa.Table, batches: list[pa.Table], measured: Measured) -> None:
        """Start, run one batch to warm up, then the measured ones; stop."""
        source = self._spark.readStream.schema(self._schema).parquet(str(self._input))
        query = (
            self._plan(source)
            .writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .start()
        )
        try:
            self._process(query, warm)
            root = psutil.Process()
            for batch in batches:
                cpu, wall = cpu_seconds(root), time.perf_counter()
                self._process(query, batch)
                measured.wall.append(time.perf_counter() - wall)
                measured.cpu.append(cpu_seconds(root) - cpu)
        finally:
            query.stop()

    def _process(self, query: Any, batch: pa.Table) -> None:
        hidden = self._folder / "next.parquet"
        pq.write_table(batch, hidden)
        hidden.rename(self._input / f"{self._files:05d}.parquet")
        self._files += 1
        query.processAllAvailable()


def state_call_micros(keys: int = 44_000, repeats: int = 5) -> dict[str, float]:
    """Microseconds of one get and one update through ValueState, best of `repeats`."""
    key_columns = KeyColumns(("key",), (pa.string(),), ("string",))
    backend = HeapKeyedStateBackend(KeyGroupRange(0, 0), key_columns, STATE_FORMS)
    value_type = pa.struct([("n", pa.int64())])
    state = backend.state(StateDescriptor("count", "value", value_type, "n bigint"))
    names = [(f"key{number:07d}",) for number in range(keys)]
    random.Random(1).shuffle(names)

    def seconds(call: Callable[[], object]) -> float:
        began = time.perf_counter()
        for name in names:
            backend.set_current_key(name, 0)
            call()
        return time.perf_counter() - began

    for name in names:
        backend.set_current_key(name, 0)
        state.update((0,))
    backend.seal()
    best = {"switch": 1e9, "get": 1e9, "update": 1e9}
    for _ in range(repeats):
        best["switch"] = min(best["switch"], seconds(lambda: None))
        best["get"] = min(best["get"], seconds(state.get))
        best["update"] = min(best["update"], seconds(lambda: state.update((1,))))
        backend.seal()
    micros = {name: value / keys * 1e6 for name, value in best.items()}
    return {name: micros[name] - micros["switch"] for name in ("get", "update")}


def start_session(folder: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(PARALLELISM),
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.cowstate.store": str(folder / "store"),
        "spark.cowstate.parallelism": str(PARALLELISM),
        "spark.local.dir": str(folder / "scratch"),
    }
    builder = SparkSession.builder.master(f"local[{PARALLELISM}]").appName("python_state")
    spark = builder.config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def measure(spark: SparkSession, folder: Path, case: Case, rounds: int) -> dict[str, Measured]:
    contenders = {plan: Contender(spark, folder, case, plan) for plan in case.plans}
    measured = {plan: Measured([], []) for plan in case.plans}
    for round_number in range(rounds):
        warm, *batches = [batch_of(case, round_number * 10 + seed) for seed in range(3)]
        for plan, contender in contenders.items():
            contender.run(warm, batches, measured[plan])
            print(f"{case.name:8} round {round_number + 1}/{rounds} {plan}", file=sys.stderr)
    return measured


def summary(case: Case, measured: dict[str, Measured]) -> dict[str, dict[str, float]]:
    median = {
        plan: {"wall": statistics.median(m.wall), "cpu": statistics.median(m.cpu)}
        for plan, m in measured.items()
    }
    floor, ours, peer = (median[plan] for plan in case.plans)
    ratios = {
        f"{kind}_of_{name}": ours[kind] / other[kind]
        for kind in ("wall", "cpu")
        for name, other in ((case.peer, peer), ("identity", floor))
    }
    return {**median, "ratio": ratios}


def main() -> None:
    """Run the cases, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--cases", nargs="*", help="all but the pandas cases if left out")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks/python_state.json"))
    arguments = parser.parse_args()
    cases = [
        Case("keys44k", arguments.rows, 0, 1),
        Case("hot1000", arguments.rows, 1000, 1),
        Case("wide", arguments.rows, 1000, WIDE_COLUMNS),
        Case("pandas44k", arguments.rows, 0, 1, "pandas_api"),
        Case("pandas1000", arguments.rows, 1000, 1, "pandas_api"),
    ]
    asked = arguments.cases or [case.name for case in cases if case.name not in ASKED_FOR]
    cases = [case for case in cases if case.name in asked]
    result: dict[str, Any] = {"state_call_us": state_call_micros()}
    with tempfile.TemporaryDirectory(prefix="cowstate-benchmark-") as name:
        spark = start_session(Path(name))
        for case in cases:
            measured = measure(spark, Path(name), case, arguments.rounds)
            result[case.name] = {"case": asdict(case), **summary(case, measured)}
        spark.stop()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=2))
    print_table(result, cases)
    print(f"written to {arguments.out}")


def print_table(result: dict[str, Any], cases: list[Case]) -> None:
    print(f"{'case':12}{'plan':16}{'wall s':>10}{'cpu s':>10}")
    for case in cases:
        for plan in case.plans:
            row = result[case.name][plan]
            print(f"{case.name:12}{plan:16}{row['wall']:10.3f}{row['cpu']:10.3f}")
        ratio = result[case.name]["ratio"]
        print(
            f"{'':12}cowstate / {case.peer}: wall {ratio[f'wall_of_{case.peer}']:.3f}, "
            f"CPU {ratio[f'cpu_of_{case.peer}']:.3f}; cowstate / identity: wall "
            f"{ratio['wall_of_identity']:.2f}, CPU {ratio['cpu_of_identity']:.2f}"
        )
    calls = result["state_call_us"]
    print(f"state call: get {calls['get']:.2f} us, update {calls['update']:.2f} us")


if __name__ == "__main__":
    main()
