"""Nexmark on Spark's state store providers.

    python -m tests.benchmarks.nexmark [--queries q3 q5 …] [--providers cowstate rocksdb …]
                                       [--events 10000000] [--files 20] [--rounds 3] [--seed 1]
                                       [--checked 200000] [--kept FOLDER] [--out FILE]

Each query runs on each provider in turn, in a process with a JVM of its own (`local[2]`). Before
any time counts, each provider but the floor answers each query over the first `--checked` events,
and the answer is compared with the same plan on a batch. The timed runs read `--events` events from
`--files` files, a file a batch, and write to `noop`. `queries` has the queries, and the reasons why
Spark cannot run the others.

    cowstate, disk   cowstate's provider: state on the heap, and in mapped files
    rocksdb, hdfs    Spark's providers; RocksDB with changelog checkpointing
    floor            a provider that keeps nothing: the cost of all else. Its answers are wrong, and
                     a join with an empty state does less than with any store

The benchmark prints, as the median of the rounds: CPU seconds of all processes (without the start
of the JVM), seconds, megabytes of state files (changelogs only), the peak of the JVM's resident
memory, and events a second and core; in brackets the ratios to cowstate of the same round. `--kept`
names a folder that keeps the events for later runs.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from spark_state.jvm.scala_compiler import compile_jar
from tests.benchmarks.benchmark_script import parser_of, write_results
from tests.benchmarks.nexmark.events import write_events
from tests.benchmarks.nexmark.process import PROVIDERS, Task
from tests.benchmarks.nexmark.queries import QUERIES

SCALA = Path(__file__).resolve().parents[1] / "scala"
FIGURES = ("cpu_s", "wall_s", "state_mb", "peak_rss_mb")
CHECKED_FILES = 5

Figures = dict[str, Any]


def run(task: Task) -> Figures:
    """Run a task in a process of its own. Raises SystemExit if the process fails."""
    with tempfile.TemporaryDirectory(prefix="cowstate-nexmark-") as folder:
        result = Path(folder) / "result.json"
        filled = json.dumps(asdict(task) | {"folder": folder})
        command = [sys.executable, "-m", "tests.benchmarks.nexmark.process", filled, str(result)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{task.query} on {task.provider}:\n{done.stderr[-4000:]}")
        figures: Figures = json.loads(result.read_text())
        return figures


def show(query: str, events: int, by_provider: dict[str, list[Figures]]) -> None:
    """Print the medians of a query, and the ratios to cowstate."""
    ours = by_provider.get("cowstate", next(iter(by_provider.values())))
    for provider, rounds in by_provider.items():
        shown = []
        for figure in FIGURES:
            median = statistics.median(each[figure] for each in rounds)
            ratios = [
                each[figure] / own[figure] if own[figure] else 0.0
                for each, own in zip(rounds, ours, strict=True)
            ]
            shown.append(f"{figure} {median:.1f} ({statistics.median(ratios):.2f})")
        speed = statistics.median(events / each["cpu_s"] for each in rounds)
        rows = rounds[-1]["state_rows"]
        print(
            f"{query:4} {provider:9} {', '.join(shown)}, {speed:,.0f} events/s/core, {rows:,} rows"
        )


def main() -> None:
    defaults = {"events": 10_000_000, "files": 20, "rounds": 3, "seed": 1, "checked": 200_000}
    parser = parser_of(__doc__, "nexmark", **defaults)
    parser.add_argument("--queries", nargs="*", default=list(QUERIES), choices=list(QUERIES))
    parser.add_argument("--providers", nargs="*", default=list(PROVIDERS), choices=list(PROVIDERS))
    parser.add_argument("--kept", type=Path)
    given = parser.parse_args()
    results: dict[str, dict[str, list[Figures]]] = {}
    with tempfile.TemporaryDirectory(prefix="cowstate-nexmark-") as name:
        kept = given.kept or Path(name)
        timed, checked = kept / f"{given.events}", kept / f"{given.checked}-checked"
        write_events(timed, given.events, given.files, given.seed)
        write_events(checked, given.checked, CHECKED_FILES, given.seed)
        floor_jar = Path(name) / "floor.jar"
        compile_jar([SCALA / "EmptyStateStoreProvider.scala"], floor_jar)
        for query in given.queries:
            for provider in (each for each in given.providers if each != "floor"):
                task = Task(query, provider, str(checked), "", str(floor_jar), is_checked=True)
                rows = run(task)["compared_rows"]
                print(f"{query:4} {provider:9} {rows:,} rows are those of a batch")
            by_provider: dict[str, list[Figures]] = defaultdict(list)
            for _ in range(given.rounds):
                for provider in given.providers:
                    task = Task(query, provider, str(timed), "", str(floor_jar), is_checked=False)
                    by_provider[provider].append(run(task))
            results[query] = by_provider
            show(query, given.events, by_provider)
    write_results(given.out, results)


if __name__ == "__main__":
    main()
