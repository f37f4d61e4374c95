"""cowstate's operator against Spark's own and against a plan without state, in one run.

    python tests/benchmarks/python_state.py [--rounds 3] [--warm 12] [--rows 50000] [--cases …]

Three queries read the same files: `identity` (mapInArrow that passes rows through: the floor), a
query of cowstate, and its peer, a query of Spark (RocksDB provider with changelog checkpointing).
Without `--cases` the cases are `keys44k`, `hot1000` and `wide`: transform_with_state and
transformWithState (`row_api`). `--cases` names other cases, or all of them with `--cases all`:
lists, maps, time to live, timers (one registered and one fired for each key), rules of a broadcast
stream, Arrow batches, and the pandas API. Spark has no peer for rules and Arrow, so the peer there
is Spark's row API.

In every round each query runs two micro-batches of every case. The queries alternate, so that all
see the same machine. Before the two micro-batches, a query runs one micro-batch to warm up, and
`--warm` micro-batches in the first round: after about a minute the JVM has compiled the query's
plan, and the compiler takes as much CPU as some batches. The benchmark measures for each batch the
wall seconds (from the arrival of the file to the commit) and the CPU seconds of all processes (JVM,
Python workers, state hosts). It prints medians and ratios, and the shares of restore, process,
write and publish in the hosts' time. The state calls are timed in this process, on 44,000 keys.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import spark_state
from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.processor.rows import STATE_FORMS
from spark_state.state_descriptor import StateDescriptor
from tests.benchmarks.benchmark_script import (
    QUIET,
    STATE_PACKAGE,
    parser_of,
    state_hosts,
    write_results,
)
from tests.benchmarks.python_state_plans import PLANS, Case, cases

PARALLELISM = 2
STEPS = ("restore", "process", "write", "last_publish")
ROCKSDB = f"{STATE_PACKAGE}.RocksDBStateStoreProvider"


@dataclass(slots=True)
class Measured:
    """Seconds of each measured batch, and the hosts' milliseconds by step, summed over the measured
    batches."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    steps: Counter[str] = field(default_factory=Counter)


def batch_of(case: Case, seed: int) -> pa.Table:
    chance = random.Random(seed)
    # 50,000 draws from 190,000 keys hold about 44,000 distinct keys.
    keys = case.keys or int(case.rows * 3.8)
    columns: dict[str, pa.Array] = {
        "key": pa.array([f"key{chance.randrange(keys):07d}" for _ in range(case.rows)])
    }
    for index in range(case.columns):
        values = [chance.random() for _ in range(case.rows)]
        columns[f"v{index}"] = pa.array(values if index % 2 else [str(v) for v in values])
    return pa.table(columns)


def cpu_seconds(root: psutil.Process) -> float:
    """User and system seconds of the JVM, its workers and the state hosts, including ended
    processes."""
    all_of_them = [*root.children(recursive=True), *state_hosts()]
    processes = {process.pid: process for process in all_of_them}
    total = 0.0
    for process in processes.values():
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


class Contender:
    """A query over its own folder of files."""

    def __init__(self, spark: SparkSession, folder: Path, case: Case, plan: str) -> None:
        self._spark = spark
        self._folder = folder / case.name / plan
        self._input = self._folder / "input"
        self._input.mkdir(parents=True)
        self._plan = PLANS[plan]
        self._has_operator = plan.startswith("cowstate")
        self._files = 0
        first = self._folder / "schema.parquet"
        pq.write_table(batch_of(case, 0).slice(0, 1), first)
        self._schema = spark.read.parquet(str(first)).schema

    def run(self, warm: list[pa.Table], batches: list[pa.Table], measured: Measured) -> None:
        """Start the query, run the warm-up batches, then the measured batches, and stop."""
        source = self._spark.readStream.schema(self._schema).parquet(str(self._input))
        query = (
            self._plan(source)
            .writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .start()
        )
        try:
            for batch in warm:
                self._process(query, batch)
            root = psutil.Process()
            for batch in batches:
                cpu, wall = cpu_seconds(root), time.perf_counter()
                self._process(query, batch)
                measured.wall.append(time.perf_counter() - wall)
                measured.cpu.append(cpu_seconds(root) - cpu)
                for operator in spark_state.progress(query) if self._has_operator else ():
                    for step in STEPS:
                        measured.steps[step] += getattr(operator, f"{step}_ms") or 0
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


def frame_micros(frames: int = 5_000, repeats: int = 5) -> float:
    """CPU microseconds of one output DataFrame, in the form that the pandas processors make."""

    def seconds() -> float:
        began = time.process_time()
        for _ in range(frames):
            pd.DataFrame({"key": ["key0000001"], "count": [1]})
        return time.process_time() - began

    return min(seconds() for _ in range(repeats)) / frames * 1e6


def start_session(folder: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        **QUIET,
        "spark.sql.shuffle.partitions": str(PARALLELISM),
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.cowstate.store": str(folder / "store"),
        "spark.cowstate.parallelism": str(PARALLELISM),
        "spark.local.dir": str(folder / "scratch"),
    }
    builder = SparkSession.builder.master(f"local[{PARALLELISM}]").appName("python_state")
    return builder.config(map=settings).getOrCreate()


def measure(
    spark: SparkSession, folder: Path, case: Case, rounds: int, warm_batches: int
) -> dict[str, Measured]:
    contenders = {plan: Contender(spark, folder, case, plan) for plan in case.plans}
    measured = {plan: Measured() for plan in case.plans}
    for round_number in range(rounds):
        warm = warm_batches if round_number == 0 else 1
        inputs = [batch_of(case, round_number * 1_000 + seed) for seed in range(warm + 2)]
        for plan, contender in contenders.items():
            contender.run(inputs[:warm], inputs[warm:], measured[plan])
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
    steps = measured[case.ours].steps
    shares = {step: steps[step] / max(steps.total(), 1) for step in STEPS}
    return {**median, "ratio": ratios, "shares": shares}


def chosen_cases(rows: int, names: list[str]) -> list[Case]:
    """The cases with these names; without names, the default cases. Raises SystemExit."""
    cases_by_name = {case.name: case for case in cases(rows)}
    if names == ["all"]:
        return list(cases_by_name.values())
    unknown = sorted(set(names) - cases_by_name.keys())
    if unknown:
        raise SystemExit(
            f"no case is called {unknown[0]}; there are all, {', '.join(cases_by_name)}"
        )
    return [
        case
        for case in cases_by_name.values()
        if case.name in names or (case.by_default and not names)
    ]


def main() -> None:
    """Run the cases, print the table, write the JSON."""
    parser = parser_of(__doc__, "python_state", rounds=3, warm=12, rows=50_000)
    parser.add_argument("--cases", nargs="*", help="names of cases, or all")
    arguments = parser.parse_args()
    chosen = chosen_cases(arguments.rows, arguments.cases or [])
    result: dict[str, Any] = {"state_call_us": state_call_micros(), "frame_us": frame_micros()}
    with tempfile.TemporaryDirectory(prefix="cowstate-benchmark-") as name:
        spark = start_session(Path(name))
        for case in chosen:
            measured = measure(spark, Path(name), case, arguments.rounds, arguments.warm)
            result[case.name] = {"case": asdict(case), **summary(case, measured)}
        spark.stop()
    write_results(arguments.out, result)
    print_table(result, chosen)
    print(f"written to {arguments.out}")


def print_table(result: dict[str, Any], chosen: list[Case]) -> None:
    print(f"{'case':14}{'plan':20}{'wall s':>10}{'cpu s':>10}")
    for case in chosen:
        for plan in case.plans:
            row = result[case.name][plan]
            print(f"{case.name:14}{plan:20}{row['wall']:10.3f}{row['cpu']:10.3f}")
        ratio = result[case.name]["ratio"]
        print(
            f"{'':14}cowstate / {case.peer}: wall {ratio[f'wall_of_{case.peer}']:.3f}, "
            f"CPU {ratio[f'cpu_of_{case.peer}']:.3f}; cowstate / identity: wall "
            f"{ratio['wall_of_identity']:.2f}, CPU {ratio['cpu_of_identity']:.2f}"
        )
        shares = result[case.name]["shares"]
        print(f"{'':14}" + ", ".join(f"{step} {share:.0%}" for step, share in shares.items()))
    calls = result["state_call_us"]
    print(f"state call: get {calls['get']:.2f} us, update {calls['update']:.2f} us")
    print(f"a DataFrame of one row: {result['frame_us']:.0f} us")


if __name__ == "__main__":
    main()
