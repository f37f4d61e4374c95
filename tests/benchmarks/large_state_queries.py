"""A large state in Spark queries: the cost of batches, memory and a restart, against the row API.

    python tests/benchmarks/large_state_queries.py [--keys 1000000 10000000] [--plans …]
                                                   [--batch 50000] [--batches 6] [--restarts 3]
                                                   [--memory-mb 256] [--limit-mb 1024]
                                                   [--out FILE] [--plot FILE]

Three queries get the same files: `cowstate` (heap), `cowstate_rocksdb`, and `row_api`
(transformWithState with Spark's RocksDB provider). The databases of `cowstate_rocksdb` share
`--memory-mb` in each host, and the host may take `--limit-mb` in all. Each query loads `--keys`
keys, and then runs `--batches` batches that change `--batch` random keys each. Then the query's
processes end, and new processes start the query again with a file of a few rows, `--restarts`
times. All stores are on the local disk, and nothing is recovered from local copies.

The benchmark prints for each query the wall seconds and CPU seconds of a batch (medians), the peak
memory of a state host, and the seconds of a restart. The seconds of a restart are the first batch
of the new processes, less the first batch of a query with the same plan and one key (medians of
both). `row_api` has its state in the JVM, so its memory is not compared. Ratios are to `row_api`.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.benchmark_script import parser_of, state_hosts, subplots
from tests.benchmarks.python_state import cpu_seconds, start_session
from tests.benchmarks.python_state_plans import PLANS

ALL_PLANS = ("cowstate", "cowstate_rocksdb", "row_api")
KEYS_OF_FILE = 250_000
ROWS_AT_RESTART = 100


@dataclass
class Measured:
    """The figures of one plan. `first_seconds`: the first batch after each restart.
    `floor_seconds`: the same for a query with one key."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    load_seconds: float = 0.0
    most_memory_mb: float = 0.0
    first_seconds: list[float] = field(default_factory=list)
    floor_seconds: list[float] = field(default_factory=list)

    @property
    def restart_seconds(self) -> float:
        """The seconds that the state adds to a restart."""
        return statistics.median(self.first_seconds) - statistics.median(self.floor_seconds)


def rows_of(keys: Sequence[int]) -> pa.Table:
    return pa.table(
        {"key": [f"key{key:09d}" for key in keys], "v0": pa.array(["a value"] * len(keys))}
    )


class Query:
    """A query of one plan in this process. `folder`: for files, input and checkpoint."""

    def __init__(self, folder: Path, plan: str, given: argparse.Namespace) -> None:
        self._folder = folder
        self._input = folder / "input"
        self._input.mkdir(parents=True, exist_ok=True)
        self._files = len([*self._input.iterdir()])
        spark = start_session(folder)
        spark.conf.set("spark.cowstate.localRecovery", "false")
        spark.conf.set("spark.cowstate.rocksdb.maxMemoryMB", str(given.memory_mb))
        if plan == "cowstate_rocksdb":
            spark.conf.set("spark.cowstate.maxMemoryMB", str(given.limit_mb))
        source = spark.readStream.schema("key string, v0 string").parquet(str(self._input))
        self._query = (
            PLANS[plan](source)
            .writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", str(folder / "checkpoint"))
        )
        self._spark = spark
        self._running: Any = None

    def run(self, table: pa.Table) -> tuple[float, float]:
        """Run a batch with these rows. Returns wall seconds and CPU seconds."""
        hidden = self._folder / "next.parquet"
        pq.write_table(table, hidden)
        root = psutil.Process()
        cpu, wall = cpu_seconds(root), time.perf_counter()
        hidden.rename(self._input / f"{self._files:05d}.parquet")
        self._files += 1
        if self._running is None:
            self._running = self._query.start()
        self._running.processAllAvailable()
        return time.perf_counter() - wall, cpu_seconds(root) - cpu

    def stop(self) -> None:
        if self._running is not None:
            self._running.stop()
        self._spark.stop()


@contextmanager
def memory_watched(measured: Measured) -> Iterator[None]:
    """Record the peak memory of state hosts during a `with` block, with two samples a second."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.5):
            for process in state_hosts():
                with suppress(psutil.Error):
                    taken = process.memory_full_info().uss / (1 << 20)
                    measured.most_memory_mb = max(measured.most_memory_mb, taken)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


def load(folder: Path, plan: str, given: argparse.Namespace, keys: int) -> Measured:
    """Load the keys, and run the measured batches."""
    measured, chance = Measured(), random.Random(7)
    with memory_watched(measured):
        query = Query(folder, plan, given)
        for first in range(0, keys, KEYS_OF_FILE):
            wall, _ = query.run(rows_of(range(first, min(first + KEYS_OF_FILE, keys))))
            measured.load_seconds += wall
        for _ in range(given.batches + 1):
            wall, cpu = query.run(rows_of(chance.sample(range(keys), min(given.batch, keys))))
            measured.wall.append(wall)
            measured.cpu.append(cpu)
        # The first batch only warms up.
        del measured.wall[0], measured.cpu[0]
        query.stop()
    return measured


def restart(folder: Path, plan: str, given: argparse.Namespace, keys: int) -> Measured:
    """Start the query again with a few rows."""
    query = Query(folder, plan, given)
    wall, _ = query.run(rows_of(range(min(ROWS_AT_RESTART, keys))))
    query.stop()
    return Measured(first_seconds=[wall])


def in_new_process(step: str, folder: Path, plan: str, keys: int, given: list[str]) -> Measured:
    """Run a step in a process of its own, as a new driver with new workers and hosts."""
    answer = folder.parent / f"{folder.name}-{step}.json"
    command = [sys.executable, __file__, *given, "--step", step, str(folder), plan, str(keys)]
    subprocess.run([*command, str(answer)], check=True, stderr=subprocess.DEVNULL)
    return Measured(**json.loads(answer.read_text()))


def measured_plan(folder: Path, plan: str, keys: int, given: list[str], restarts: int) -> Measured:
    """Run all steps of one plan."""
    large, small = folder / "large", folder / "of-one-key"
    measured = in_new_process("load", large, plan, keys, given)
    in_new_process("load", small, plan, 1, given)
    for _ in range(restarts):
        measured.first_seconds += in_new_process("restart", large, plan, keys, given).first_seconds
        measured.floor_seconds += in_new_process("restart", small, plan, 1, given).first_seconds
    return measured


def of_peer(measured: Measured, peer: Measured) -> tuple[float, float, float]:
    """Ratios to a peer: wall seconds and CPU seconds of a batch, and seconds of a restart."""
    wall, cpu = (
        statistics.median(getattr(measured, name)) / statistics.median(getattr(peer, name))
        for name in ("wall", "cpu")
    )
    return wall, cpu, measured.restart_seconds / peer.restart_seconds


def tell(keys: int, results: dict[str, Measured]) -> None:
    """Print the measurements."""
    print(
        f"{keys:>12,} keys {'wall s':>8}{'CPU s':>8}{'host MiB':>11}{'restart s':>11}{'load s':>8}"
    )
    for plan, measured in results.items():
        wall, cpu = statistics.median(measured.wall), statistics.median(measured.cpu)
        memory = "" if plan == "row_api" else f"{measured.most_memory_mb:.0f}"
        print(
            f"{plan:18}{wall:8.3f}{cpu:8.2f}{memory:>11}{measured.restart_seconds:11.2f}"
            f"{measured.load_seconds:8.1f}"
        )
    if "row_api" not in results:
        return
    for plan, measured in results.items():
        if plan != "row_api":
            wall, cpu, again = of_peer(measured, results["row_api"])
            print(f"{plan} / row_api: wall {wall:.3f}, CPU {cpu:.3f}, restart {again:.3f}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def plot(results: dict[int, dict[str, Measured]], path: Path) -> None:
    """Plot CPU of a batch, seconds of a restart, and memory, as bars for each number of keys."""
    panels: dict[str, Callable[[Measured], float]] = {
        "CPU seconds of a batch": lambda measured: statistics.median(measured.cpu),
        "seconds of a restart": lambda measured: measured.restart_seconds,
        "memory of a state host, MiB": lambda measured: measured.most_memory_mb,
    }
    figure, axes = subplots(1, len(panels), (12, 3.8))
    for axis, (title, value) in zip(axes, panels.items(), strict=True):
        plans = [*next(iter(results.values()))]
        if title.startswith("memory"):
            plans = [plan for plan in plans if plan != "row_api"]
        for number, plan in enumerate(plans):
            places = [at + 0.25 * number for at in range(len(results))]
            bars = axis.bar(
                places, [value(by_plan[plan]) for by_plan in results.values()], 0.23, label=plan
            )
            axis.bar_label(bars, fmt=_number, fontsize=8)
        middle = [at + 0.125 * (len(plans) - 1) for at in range(len(results))]
        axis.set_xticks(middle, [f"{keys:,} keys" for keys in results])
        axis.set(title=title)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=110)


def main() -> None:
    sizes = {"batch": 50_000, "batches": 6, "restarts": 3, "memory_mb": 256, "limit_mb": 1024}
    parser = parser_of(__doc__, "large_state_queries", **sizes)
    parser.add_argument("--keys", type=int, nargs="*", default=[1_000_000, 10_000_000])
    parser.add_argument("--plans", nargs="*", default=[*ALL_PLANS], choices=ALL_PLANS)
    parser.add_argument("--plot", type=Path, help="a file for a plot")
    parser.add_argument("--step", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step is not None:
        step, folder, plan, keys, answer = given.step
        steps = {"load": load, "restart": restart}
        measured = steps[step](Path(folder), plan, given, int(keys))
        Path(answer).write_text(json.dumps(asdict(measured)))
        return
    results: dict[int, dict[str, Measured]] = {}
    for keys in given.keys:
        with tempfile.TemporaryDirectory(prefix="cowstate-benchmark-") as folder:
            results[keys] = {
                plan: measured_plan(Path(folder) / plan, plan, keys, sys.argv[1:], given.restarts)
                for plan in given.plans
            }
        tell(keys, results[keys])
    given.out.parent.mkdir(parents=True, exist_ok=True)
    documents = {
        keys: {plan: asdict(measured) for plan, measured in of_keys.items()}
        for keys, of_keys in results.items()
    }
    given.out.write_text(json.dumps(documents, indent=2))
    if given.plot is not None:
        plot(results, given.plot)


if __name__ == "__main__":
    main()
