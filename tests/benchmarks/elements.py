"""Cost of ten changes of a map in an epoch: a map of 100,000 entries against a map of 10 entries.

    python tests/benchmarks/elements.py [--large 100000] [--small 10] [--epochs 60] [--out FILE]

Two subtasks run in turn in this process, each in a state host's session over a folder, with
changelogs, barriers and snapshots. The benchmark measures for each epoch the CPU seconds, without
the threads that write snapshots, and the bytes that the barrier names for the first time, without
and with snapshots. It prints medians, sums, and ratios of large to small.
"""

from __future__ import annotations

import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import Row

from spark_state.subtasks.maintenance import Maintenance
from tests.benchmarks.benchmark_script import parser_of, write_results
from tests.support.operators.subtasks import Host, operator
from tests.support.processors.processors import Processor

CHANGES = 10


class Counts(Processor):
    """Processor that counts values of a key in a map. A negative value -n fills the map with n
    entries."""

    def init(self, handle: Any) -> None:
        self._counts = handle.getMapState("counts", "value bigint", "n bigint, text string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            if row.value < 0:
                for value in range(-row.value):
                    self._counts.updateValue((value,), (1, "some text of an entry"))
            else:
                before = self._counts.getValue((row.value,))
                self._counts.updateValue((row.value,), (before.n + 1, before.text))
        return iter([])


@dataclass(slots=True)
class Measured:
    """CPU seconds, bytes of the changelog, and bytes of all files, for each epoch after the
    first."""

    seconds: list[float] = field(default_factory=list)
    changelogs: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)


def run_epoch(host: Host, epoch: int, values: list[int], measured: Measured) -> None:
    start = time.thread_time()
    host.epoch(epoch, [("key", value) for value in values])
    measured.seconds.append(time.thread_time() - start)
    new = [handle for handle in host.handles if handle.epoch == epoch]
    measured.changelogs.append(sum(h.length for h in new if h.kind == "changelog"))
    measured.files.append(host.report.written_bytes)


def main() -> None:
    options = parser_of(__doc__, "elements", large=100_000, small=10, epochs=60).parse_args()
    sizes = {"large": options.large, "small": options.small}
    chance, measured = random.Random(1), {name: Measured() for name in sizes}
    with tempfile.TemporaryDirectory() as folder, Maintenance() as maintenance:
        hosts = {}
        for name, size in sizes.items():
            hosts[name] = Host(operator(Path(folder) / name, Counts())).open(maintenance)
            run_epoch(hosts[name], 0, [-size], Measured())
        for epoch in range(1, options.epochs + 1):
            for name, size in sizes.items():
                values = [chance.randrange(size) for _ in range(CHANGES)]
                run_epoch(hosts[name], epoch, values, measured[name])
    result = {name: summary(of_size) for name, of_size in measured.items()}
    result["large to small"] = {
        what: round(result["large"][what] / result["small"][what], 2) for what in result["large"]
    }
    print(json.dumps(result, indent=2))
    write_results(options.out, result)


def summary(measured: Measured) -> dict[str, float]:
    return {
        "median CPU ms of an epoch": round(1000 * statistics.median(measured.seconds), 3),
        "CPU ms of all epochs": round(1000 * sum(measured.seconds), 1),
        "median bytes of a changelog": statistics.median(measured.changelogs),
        "bytes of all files": sum(measured.files),
    }


if __name__ == "__main__":
    main()
