"""A large state without Spark: the bytes of its epochs, and what restores cost.

    python tests/benchmarks/large_state.py [--keys 1000000] [--churn 0.01] [--epochs 120]

An operator that counts and sums has `--keys` keys in one subtask, on a local disk. Then each of
`--epochs` epochs changes a share `--churn` of the keys, drawn at random. Three operators get the
same epochs: in RocksDB with databases as snapshots (`database`), in RocksDB with rows as snapshots
(`rows`), and on the heap (`heap`).

Printed are for each: the bytes that an epoch writes with its share of the snapshots, to those of
the last whole snapshot as rows; the seconds, and the CPU seconds, until a host that begins has the
state, medians of `--restores`, also for one of two subtasks; and ratios to `rows`.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from checkpoint_store.files.state_handle import bytes_of
from spark_state.host.epoch_request import BackendSettings
from spark_state.host.maintenance import Maintenance
from tests.support.subtasks import Host, operator

CASES = {
    "database": BackendSettings(kind="rocksdb"),
    "rows": BackendSettings(kind="rocksdb", incremental=False),
    "heap": BackendSettings(),
}
KEYS_OF_EPOCH = 250_000


@dataclass
class Measured:
    """`written`: the bytes of each epoch after the load; `read_bytes`: of the files that restores
    read; `seconds`, `cpu_seconds`: of restores, by how many subtasks there are."""

    written: list[int] = field(default_factory=list)
    read_bytes: int = 0
    seconds: dict[int, float] = field(default_factory=dict)
    cpu_seconds: dict[int, float] = field(default_factory=dict)


class Case:
    """One of the operators, with its store in `folder`."""

    def __init__(self, folder: Path, backend: BackendSettings) -> None:
        self.measured = Measured()
        self._spec = replace(operator(folder, max_parallelism=128), backend=backend)
        self._maintenance = Maintenance()
        self._host = Host(self._spec, run_id="run").open(self._maintenance)
        self._epoch = 0

    def run(self, keys: Sequence[str]) -> int:
        """An epoch that changes these keys; the bytes that it wrote."""
        self._host.epoch(self._epoch, [(key, 1) for key in keys])
        # The next epoch names the snapshot if one was due.
        self._host.finish_maintenance()
        self._epoch += 1
        assert self._host.report is not None
        return self._host.report.written_bytes

    def snapshot_bytes(self) -> int:
        """What the files take that are no changelogs."""
        return bytes_of(handle for handle in self._host.handles if handle.kind != "changelog")

    def end(self) -> None:
        """No epoch comes after this."""
        self.measured.read_bytes = bytes_of(self._host.handles)
        self._host.close()
        self._maintenance.close()

    def restore(self, parallelism: int) -> tuple[float, float]:
        """Seconds and CPU seconds until a new host has the state of one subtask."""
        spec = replace(self._spec, parallelism=parallelism)
        with Maintenance() as maintenance:
            host = Host(spec, run_id="run").open(maintenance)
            session = host.session
            assert session is not None
            request = host.request(self._epoch, 1 << 30)
            attempt = session._attempt(request, session.accept(request), lambda: None)
            begun, cpu_begun = time.perf_counter(), time.process_time()
            session._bring_to_base(attempt)
            taken = time.perf_counter() - begun, time.process_time() - cpu_begun
            host.close()
        return taken


def measure_restores(cases: dict[str, Case], restores: int) -> None:
    """The cases take turns."""
    for parallelism in (1, 2):
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
        for _ in range(restores):
            for name, case in cases.items():
                taken[name].append(case.restore(parallelism))
        for name, case in cases.items():
            seconds, cpu_seconds = zip(*taken[name], strict=True)
            case.measured.seconds[parallelism] = statistics.median(seconds)
            case.measured.cpu_seconds[parallelism] = statistics.median(cpu_seconds)


def tell(cases: dict[str, Case], state_bytes: int) -> None:
    """Print what was measured."""
    rows = cases["rows"].measured
    for name, case in cases.items():
        own = case.measured
        share = statistics.mean(own.written) / state_bytes
        print(f"{name}: an epoch writes {100 * share:.2f}% of the state")
        for parallelism, seconds in own.seconds.items():
            cpu = own.cpu_seconds[parallelism]
            to_rows = seconds / rows.seconds[parallelism], cpu / rows.cpu_seconds[parallelism]
            print(
                f"    restore, one of {parallelism}: {seconds:.2f} s, {cpu:.2f} CPU s, "
                f"{own.read_bytes / cpu / 1e6:.0f} MB per CPU s; to rows {to_rows[0]:.3f}, "
                f"CPU {to_rows[1]:.3f}; to one of 1 {seconds / own.seconds[1]:.2f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--churn", type=float, default=0.01, help="of the keys, in each epoch")
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--restores", type=int, default=3)
    default = Path(__file__).resolve().parent / "results" / "large_state.json"
    parser.add_argument("--out", type=Path, default=default)
    given = parser.parse_args()
    keys = [f"key {number}" for number in range(given.keys)]
    chance, changed = random.Random(7), int(given.keys * given.churn)
    with tempfile.TemporaryDirectory() as folder:
        cases = {name: Case(Path(folder) / name, backend) for name, backend in CASES.items()}
        for first in range(0, len(keys), KEYS_OF_EPOCH):
            for case in cases.values():
                case.run(keys[first : first + KEYS_OF_EPOCH])
        for _ in range(given.epochs):
            drawn = chance.sample(keys, changed)
            for case in cases.values():
                case.measured.written.append(case.run(drawn))
        state_bytes = cases["rows"].snapshot_bytes()
        for case in cases.values():
            case.end()
        measure_restores(cases, given.restores)
    tell(cases, state_bytes)
    result = {name: asdict(case.measured) for name, case in cases.items()}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps({"state_bytes": state_bytes, **result}, indent=2))


if __name__ == "__main__":
    main()
