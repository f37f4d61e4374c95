"""A large state without Spark: the bytes of epochs, and the cost of restores.

    python tests/benchmarks/large_state.py [--keys 1000000] [--churn 0.01] [--turnovers 2]
                                           [--text 0] [--restores 3] [--plot FILE]

An operator counts and sums, and keeps a text of `--text` random characters for each key. One
subtask has `--keys` keys, on a local disk. Then each epoch changes a random share `--churn` of the
keys, until each key has changed `--turnovers` times on average. Three operators get the same
epochs: in RocksDB with databases as snapshots (`database`), in RocksDB with rows as snapshots
(`rows`), and on the heap (`heap`). Several values of `--churn` give one measurement each.

The benchmark prints for each operator:

    bytes     written in an epoch, with the epoch's share of snapshots, divided by the bytes of the
              last whole snapshot as rows
    seconds   of an epoch, without snapshots, which are written in the background
    restore   seconds and CPU seconds until a new host has the state, medians of `--restores`, for a
              single subtask and for one of two subtasks
    ratios    to `rows`
"""

from __future__ import annotations

import argparse
import hashlib
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import Row

from checkpoint_store.files.state_handle import bytes_of
from spark_state.subtasks.epoch_request import BackendSettings
from spark_state.subtasks.maintenance import Maintenance
from tests.benchmarks.benchmark_script import parser_of, subplots, write_results
from tests.support.operators.subtasks import Host, operator
from tests.support.processors.processors import RunningTotals

CASES = {
    "database": BackendSettings(kind="rocksdb"),
    "rows": BackendSettings(kind="rocksdb", incremental=False),
    "heap": BackendSettings(),
}
KEYS_OF_EPOCH = 250_000


class TotalsAndText(RunningTotals):
    """Processor that counts and sums the rows of a key, and keeps hexadecimal characters computed
    from the key."""

    def __init__(self, characters: int) -> None:
        self._characters = characters

    def init(self, handle: Any) -> None:
        self._totals = handle.getValueState("totals", "rows bigint, total bigint, text string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        count, total, text = self._totals.get() or (0, 0, self._text(key[0]))
        for row in rows:
            count += 1
            total += row.value
        self._totals.update((count, total, text))
        yield Row(key=key[0], rows=count, total=total)

    def _text(self, key: str) -> str:
        return hashlib.shake_128(key.encode()).hexdigest(self._characters // 2)


@dataclass
class Measured:
    """The figures of one operator. `written`: the bytes of each epoch after the load. `epochs`: the
    seconds of each epoch after the load. `read_bytes`: bytes of the files that restores read.
    `seconds`, `cpu_seconds`: of restores, by the number of subtasks."""

    written: list[int] = field(default_factory=list)
    epochs: list[float] = field(default_factory=list)
    read_bytes: int = 0
    seconds: dict[int, float] = field(default_factory=dict)
    cpu_seconds: dict[int, float] = field(default_factory=dict)


class Case:
    """An operator of the benchmark, with its store in `folder`."""

    def __init__(self, folder: Path, backend: BackendSettings, characters: int) -> None:
        self.measured = Measured()
        processor = TotalsAndText(characters) if characters else RunningTotals()
        self._spec = operator(folder, processor, max_parallelism=128, backend=backend)
        self._maintenance = Maintenance()
        self._host = Host(self._spec, run_id="run").open(self._maintenance)
        self._epoch = 0

    def run(self, keys: Sequence[str]) -> tuple[int, float]:
        """Run an epoch that changes these keys. Returns the written bytes and the seconds of the
        epoch."""
        rows = [(key, 1) for key in keys]
        begun = time.perf_counter()
        self._host.epoch(self._epoch, rows)
        taken = time.perf_counter() - begun
        # If a snapshot was due, the next epoch names the snapshot.
        self._host.finish_maintenance()
        self._epoch += 1
        return self._host.report.written_bytes, taken

    def snapshot_bytes(self) -> int:
        """The bytes of all files except changelogs."""
        return bytes_of(handle for handle in self._host.handles if handle.kind != "changelog")

    def end(self) -> None:
        """End the epochs: note the bytes of the files, and close the host."""
        self.measured.read_bytes = bytes_of(self._host.handles)
        self._host.close()
        self._maintenance.close()

    def restore(self, parallelism: int) -> tuple[float, float]:
        """Seconds and CPU seconds until a new host has the state of one subtask."""
        spec = replace(self._spec, parallelism=parallelism)
        with Maintenance() as maintenance:
            host = Host(spec, run_id="run").open(maintenance)
            session = host.session
            request = host.request(self._epoch, 1 << 30)
            attempt = session.accept(request, lambda: None)
            begun, cpu_begun = time.perf_counter(), time.process_time()
            session._bring_to_base(attempt)
            taken = time.perf_counter() - begun, time.process_time() - cpu_begun
            host.close()
        return taken


def measure_restores(cases: dict[str, Case], restores: int) -> None:
    """Measure the restores of all cases, which take turns."""
    for parallelism in (1, 2):
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
        for _ in range(restores):
            for name, case in cases.items():
                taken[name].append(case.restore(parallelism))
        for name, case in cases.items() if restores else ():
            seconds, cpu_seconds = zip(*taken[name], strict=True)
            case.measured.seconds[parallelism] = statistics.median(seconds)
            case.measured.cpu_seconds[parallelism] = statistics.median(cpu_seconds)


@dataclass
class Result:
    """The measurements with one churn."""

    churn: float
    state_bytes: int
    cases: dict[str, Measured]

    def share(self, name: str) -> float:
        """The mean bytes of an epoch, divided by the bytes of the state."""
        return statistics.mean(self.cases[name].written) / self.state_bytes


def measure(churn: float, folder: Path, given: argparse.Namespace) -> Result:
    """Run the cases over the same epochs, and measure restores. Raises SystemExit if no snapshot
    was due."""
    keys = [f"key {number}" for number in range(given.keys)]
    chance, changed = random.Random(7), round(given.keys * churn)
    cases = {name: Case(folder / name, backend, given.text) for name, backend in CASES.items()}
    for first in range(0, len(keys), KEYS_OF_EPOCH):
        for case in cases.values():
            case.run(keys[first : first + KEYS_OF_EPOCH])
    for _ in range(round(given.turnovers / churn)):
        drawn = chance.sample(keys, changed)
        for case in cases.values():
            written, seconds = case.run(drawn)
            case.measured.written.append(written)
            case.measured.epochs.append(seconds)
    state_bytes = cases["rows"].snapshot_bytes()
    if not state_bytes:
        raise SystemExit(f"no snapshot was due with churn {churn}; give more --turnovers")
    for case in cases.values():
        case.end()
    measure_restores(cases, given.restores)
    return Result(churn, state_bytes, {name: case.measured for name, case in cases.items()})


def tell(result: Result) -> None:
    """Print the measurements."""
    print(f"churn {result.churn:.2%}, a state of {result.state_bytes / 1e6:,.0f} MB as rows")
    rows = result.cases["rows"]
    for name, own in result.cases.items():
        seconds, ratio = (statistics.median(measured.epochs) for measured in (own, rows))
        print(
            f"{name}: an epoch writes {result.share(name):.2%} of the state and takes "
            f"{seconds:.3f} s; to rows {seconds / ratio:.2f}"
        )
        for parallelism, seconds in own.seconds.items():
            cpu, to_whole = own.cpu_seconds[parallelism], seconds / own.seconds[1]
            to_rows = seconds / rows.seconds[parallelism], cpu / rows.cpu_seconds[parallelism]
            print(
                f"    restore, one of {parallelism}: {seconds:.2f} s, {cpu:.2f} CPU s, "
                f"{own.read_bytes / parallelism / cpu / 1e6:.0f} MB per CPU s; to rows "
                f"{to_rows[0]:.3f}, CPU {to_rows[1]:.3f}; to one of 1 {to_whole:.2f}"
            )


def plot(results: Sequence[Result], path: Path) -> None:
    """Plot bytes and seconds of an epoch over the churn."""
    figure, (of_bytes, of_seconds) = subplots(1, 2, (10, 4))
    churns = [100 * result.churn for result in results]
    of_bytes.plot(churns, churns, ":", color="0.6", label="what changes")
    for name in CASES:
        shares = [100 * result.share(name) for result in results]
        seconds = [statistics.median(result.cases[name].epochs) for result in results]
        of_bytes.plot(churns, shares, "-o", label=name)
        of_seconds.plot(churns, seconds, "-o", label=name)
    of_bytes.set(title="bytes that an epoch writes, % of the state")
    of_seconds.set(title="seconds of an epoch")
    for axis in (of_bytes, of_seconds):
        axis.set(xscale="log", yscale="log", xlabel="keys that an epoch changes, %")
        axis.grid(alpha=0.3)
    of_bytes.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    sizes = {"keys": 1_000_000, "turnovers": 2.0, "text": 0, "restores": 3}
    parser = parser_of(__doc__, "large_state", **sizes)
    parser.add_argument("--churn", type=float, nargs="*", default=[0.01], help="keys of an epoch")
    parser.add_argument("--plot", type=Path, help="a file for a plot")
    given = parser.parse_args()
    results = []
    for churn in given.churn:
        with tempfile.TemporaryDirectory() as folder:
            results.append(measure(churn, Path(folder), given))
        tell(results[-1])
    write_results(given.out, [asdict(result) for result in results])
    if given.plot is not None:
        plot(results, given.plot)


if __name__ == "__main__":
    main()
