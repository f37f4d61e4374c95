"""Additional time of commits through the gateway, and commits that the gateway takes at once.

    python tests/benchmarks/provider_store.py [--rounds 5] [--files 200] [--bytes 100000]
                                              [--latency-ms 30]

Every run is a JVM of its own, without Spark, whose threads commit files like the stores of an
executor. In each round the direct path and the gateway run in turn, on one disk:

    alone     1 store: the gateway's time beyond the direct path, in the median and at the 95th
              percentile; the median should be at most 5 ms
    many      64 stores at once, on the local disk, beside the direct path
    distant   64 stores at once, in a store that takes `--latency-ms` to put an object: the time of
              all 64 commits, divided by this latency

The first tenth of the files warms up, including the start of the gateway.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import spark_state
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from spark_state.jvm.scala_compiler import compile_jar
from tests.benchmarks.benchmark_script import STATE_PACKAGE, parser_of, run_java, write_results

HERE = Path(__file__).resolve().parent
MAIN = f"{STATE_PACKAGE}.cowstate.benchmarks.StoreCommits"
MANY = 64
MOST_MORE_MS = 5.0


@dataclass(frozen=True, slots=True)
class Commits:
    """Milliseconds of each commit, and of each round of all stores."""

    each: list[float]
    rounds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.each)

    @property
    def slow(self) -> float:
        """The 95th percentile of the commits."""
        return statistics.quantiles(self.each, n=20)[-1]

    @property
    def median_round(self) -> float:
        return statistics.median(self.rounds)


@dataclass(frozen=True, slots=True)
class Harness:
    """The compiled program, and the sizes of its runs."""

    jar: Path
    folder: Path
    files: int
    size: int

    def run(self, kind: str, stores: int, python: Path | str = sys.executable) -> Commits:
        """Commit into an empty directory. Raises SystemExit if the program fails."""
        root = self.folder / "root"
        files = max(self.files // stores, 20)
        arguments = (kind, root, stores, files, self.size)
        try:
            lines = run_java(self.jar, MAIN, arguments, PYSPARK_PYTHON=str(python))
        finally:
            shutil.rmtree(root, ignore_errors=True)
        each, rounds = ([int(us) / 1000 for us in line.split()] for line in lines)
        warm = files // 10
        return Commits(each[warm * stores :], rounds[warm:])


class DistantStore:
    """A store with a fixed latency of put."""

    def __init__(self, store: ObjectStore, seconds: float) -> None:
        self._store = store
        self._seconds = seconds

    def put(self, name: str, data: bytes) -> None:
        time.sleep(self._seconds)
        self._store.put(name, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def serve_distant_store(latency_ms: float) -> None:
    """Run the gateway of a distant store."""
    from spark_state.gateway import server, stored_objects

    def opened(url: str, options: Mapping[str, Any]) -> Any:
        return DistantStore(open_object_store(url, options), latency_ms / 1000)

    stored_objects.open_object_store = opened
    server.main()


def distant_python(folder: Path, latency_ms: float) -> Path:
    """Write a program that an executor runs in place of Python, and that serves a distant store."""
    python = folder / "distant-python"
    call = f"provider_store.serve_distant_store({latency_ms})"
    python.write_text(
        f"#!/bin/sh\nunset PYTHONSAFEPATH\ncd {HERE}\n"
        f"exec {sys.executable} -c 'import provider_store; {call}'\n"
    )
    python.chmod(0o755)
    return python


def measure(harness: Harness, rounds: int, python: Path, latency_ms: float) -> dict[str, float]:
    alone: dict[str, list[Commits]] = {"direct": [], "gateway": []}
    many: dict[str, list[float]] = {"direct": [], "gateway": []}
    distant = []
    for number in range(rounds):
        for kind in ("direct", "gateway") if number % 2 == 0 else ("gateway", "direct"):
            alone[kind].append(harness.run(kind, 1))
            many[kind].append(harness.run(kind, MANY).median_round)
        distant.append(harness.run("gateway", MANY, python).median_round)
    medians = {kind: [commits.median for commits in runs] for kind, runs in alone.items()}
    slow = {kind: [commits.slow for commits in runs] for kind, runs in alone.items()}
    return {
        "alone_direct_ms": statistics.median(medians["direct"]),
        "alone_gateway_ms": statistics.median(medians["gateway"]),
        "alone_more_ms": median_difference(medians),
        "alone_direct_p95_ms": statistics.median(slow["direct"]),
        "alone_gateway_p95_ms": statistics.median(slow["gateway"]),
        "alone_more_p95_ms": median_difference(slow),
        "many_direct_ms": statistics.median(many["direct"]),
        "many_gateway_ms": statistics.median(many["gateway"]),
        "distant_round_ms": statistics.median(distant),
        "distant_puts": statistics.median(distant) / latency_ms,
    }


def median_difference(by_kind: dict[str, list[float]]) -> float:
    """The additional time of the gateway over the direct path, in the median round."""
    pairs = zip(by_kind["gateway"], by_kind["direct"], strict=True)
    return statistics.median(gateway - direct for gateway, direct in pairs)


def arguments() -> argparse.Namespace:
    sizes = {"rounds": 5, "files": 200, "bytes": 100_000, "latency_ms": 30.0}
    parser = parser_of(__doc__, "provider_store", **sizes)
    parser.add_argument("--folder", type=Path, help="where files go; default: temporary")
    return parser.parse_args()


def main() -> None:
    """Measure, print, and write the JSON."""
    given = arguments()
    with tempfile.TemporaryDirectory(prefix="cowstate-benchmark-", dir=given.folder) as name:
        folder = Path(name)
        jar = folder / "commits.jar"
        sources = (HERE / "scala" / "gateway").glob("*.scala")
        compile_jar(sources, jar, classpath=[Path(spark_state.jar_path())])
        harness = Harness(jar, folder, given.files, given.bytes)
        python = distant_python(folder, given.latency_ms)
        result = measure(harness, given.rounds, python, given.latency_ms)
    for figure, value in result.items():
        print(f"{figure:20} {value:8.2f}")
    verdict = "met" if result["alone_more_ms"] <= MOST_MORE_MS else "MISSED"
    print(f"a commit through the gateway takes {result['alone_more_ms']:.2f} ms more: {verdict}")
    write_results(given.out, result)


if __name__ == "__main__":
    main()
