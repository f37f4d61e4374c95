"""The state store provider against HDFSBacked, RocksDB and a store that does nothing.

    python tests/benchmarks/provider.py [--scenario a b c d e groups join] [--rounds 3]
                                        [--scale 1.0] [--partitions 2] [--warm N] [--no-snapshots]
                                        [--soak] [--providers cowstate …] [--free-memory GIB]

Every run is a process with a JVM of its own (local[2], default collector). In each round every
provider runs once, in turn. Input is `rate-micro-batch`, output goes to `noop`. Some warm-up
batches come before the measured batches; `--warm` sets their number. For about a hundred batches,
Java's compiler takes a part of the two cores.

    a        2M keys, 500,000 rows a batch: count and sum by key, about 442,000 updates
    b        the same with 4.5M keys and 10,000 rows a batch; then, in a new JVM that has run a
             small query to warm up, the first batch on this checkpoint: from changelogs alone
             (`restart`), and again after maintenance wrote snapshots (`restart snapshot`), which
             `--no-snapshots` leaves out. `…load_ms`: the time in which stores were restored, for
             each of the two cores
    session  session windows (one half of c)
    join     inner join of two streams (the other half of c); also runs under its own name
    e        distinct keys, 4.5M in all, 10,000 rows a batch, with a watermark that makes no key too
             old. Runs only under its name
    groups   counts in flatMapGroupsWithState: 1M keys with a timeout that does not come, 50,000
             rows a batch. Runs only under its name
    d        40M keys with 18 sums each, 8 GB of records, meant for `--providers disk rocksdb
             --memory 1g`. Runs only under its name
    soak     500 batches that update the same keys. Some values change their length each time.
             Every ten batches samples heap, RSS, open files and mapped files, and memory and open
             files of the gateway

In `a` and `b`, each key first comes once, to fill the state; then keys are hashed. For each batch
after the warm-up, the benchmark takes wall time (Spark's triggerExecution) and task CPU. For all
these batches together, it takes the CPU of the collector's threads (Linux) and the collection time
of Java's beans. Live heap is the heap after a forced collection, with the query stopped and its
state still loaded. RSS is the peak of the process.

The benchmark checks the answers: the counts in the state against the rows read, and in `c` each
batch's output against the other providers. The floor gives wrong answers. Times are printed beside
the requirements, and fail nothing. A ratio is the median of the rounds' ratios, because runs within
one round see the same machine.

`--providers cowstate unsynced` compares with …cowstate.fsync = false: the cost of syncing files.
`commit_ms` is the time of commits, summed over the partitions. Two partitions commit side by side.
So the share of syncing is half of the additional commit time, divided by the batch without syncing.
On a machine with other work, this share is steadier than the ratio of two batches.

`disk` is cowstate with its state in mapped files. `answering` is a store that has one row for all
keys and keeps nothing. Spark merges this row into each group, as with the rows of a real store, but
not with `floor`. So `answering` shows the least time of an aggregation in Spark's own plan.

`spark_plans` is cowstate with …cowstate.changePlans = false: Spark's plan of a batch stays
unchanged, as with all other providers.

`--free-memory` first takes the rest of the machine's memory. With `--scenario d --providers disk`
and less free memory than the state needs, the system cannot cache all mapped files.

`huge_pages` is cowstate in a JVM that asks the system for large memory pages for its heap
(-XX:+UseTransparentHugePages). The map's table and records are on this heap.

`--providers cowstate stored` compares with a state in an object store, which is a directory on the
same disk: the cost of the gateway. `provider_store.py` measures single commits.

Ratios compare `cowstate` with the other providers. Without `cowstate` in the run, ratios compare
the first named provider with the others.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from provider_run.machine import free_memory_of
from provider_run.process import CORES, FLOORS, PROVIDERS, SNAPSHOT_FILES, Task
from provider_run.queries import SCENARIOS

from spark_state.jvm.scala_compiler import compile_jar
from tests.benchmarks.benchmark_script import parser_of, write_results

HERE = Path(__file__).resolve().parent
ALONE = ("a", "b", "d", "e", "groups", "join")
LETTERS = {"c": ("session", "join"), **{name: (name,) for name in ALONE}}
SOURCES = ("EmptyStateStoreProvider", "GroupCounts")
USUAL = ("a", "b", "c")
FIGURES = (
    *("wall_ms", "commit_ms", "task_cpu_ms"),
    *("gc_cpu_ms", "gc_ms", "live_heap_mb", "peak_rss_mb"),
)
COMPARED = ("hdfs", "rocksdb", "cowstate", "floor")
RESTARTS = (
    *("restart_ms", "restart_load_ms"),
    *("restart_snapshot_ms", "restart_snapshot_load_ms"),
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """Upper bound of a provider's figure divided by the peer's figure, or by the faster of two
    peers.

    Without a peer, the bound is for the figure itself, with the full load of the scenario (`--scale
    1`).
    """

    scenario: str
    figure: str
    peers: tuple[str, ...]
    at_most: float
    provider: str = "cowstate"


REQUIREMENTS = (
    Requirement("a", "wall_ms", ("hdfs",), 0.5),
    Requirement("a", "wall_ms", ("rocksdb",), 0.25),
    Requirement("a", "wall_ms", ("floor",), 1.2),
    Requirement("a", "task_cpu_ms", ("floor",), 1.5),
    Requirement("a", "live_heap_mb", ("hdfs",), 0.6),
    Requirement("b", "wall_ms", ("hdfs",), 0.15),
    Requirement("b", "wall_ms", ("rocksdb",), 0.7),
    Requirement("b", "restart_ms", ("hdfs",), 0.5),
    Requirement("b", "restart_ms", ("rocksdb",), 0.15),
    Requirement("session", "wall_ms", ("hdfs", "rocksdb"), 1.0),
    Requirement("join", "wall_ms", ("hdfs", "rocksdb"), 1.0),
    Requirement("join", "wall_ms", ("floor",), 1.4),
    Requirement("a", "wall_ms", ("unsynced",), 1.05),
    Requirement("b", "wall_ms", ("unsynced",), 1.05),
    Requirement("a", "live_heap_mb", (), 250),
    Requirement("b", "restart_load_ms", (), 1800),
    Requirement("b", "restart_snapshot_load_ms", (), 1800),
    Requirement("a", "wall_ms", ("rocksdb",), 0.5, "disk"),
    Requirement("d", "wall_ms", ("rocksdb",), 0.5, "disk"),
    Requirement("a", "wall_ms", ("cowstate",), 1.5, "disk"),
    Requirement("b", "wall_ms", ("cowstate",), 1.5, "disk"),
)

Figures = dict[str, float]
# The results of each provider, by round.
Runs = dict[str, list[dict[str, Any]]]


def run(task: Task) -> dict[str, Any]:
    """Do the task in a process of its own."""
    result = Path(task.folder) / "result.json"
    result.unlink(missing_ok=True)
    command = [sys.executable, "-m", "provider_run.process", json.dumps(asdict(task)), str(result)]
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    subprocess.run(command, env={**os.environ, **settings}, check=True)
    return json.loads(result.read_text())


def run_scenario(task: Task) -> dict[str, Any]:
    """Run all phases of a scenario with one provider, from an empty folder."""
    Path(task.folder).mkdir()
    try:
        result = run(task)
        if SCENARIOS[task.scenario].restarts:
            result |= named("restart", run(replace(task, phase="restart")))
            if task.with_snapshots and task.provider in SNAPSHOT_FILES:
                result |= run(replace(task, phase="snapshot"))
                result |= named("restart_snapshot", run(replace(task, phase="restart")))
        return result
    finally:
        shutil.rmtree(task.folder)


def named(restart: str, first_batch: dict[str, Any]) -> Figures:
    """The figures of a restart, with `restart` as prefix of their names."""
    return {f"{restart}_{name}": value for name, value in first_batch.items()}


def check_answers(scenario: str, results: dict[str, dict[str, Any]]) -> None:
    """Check that each batch has the same output with all providers, for the batches that all
    providers ran."""
    outputs = {name: r["answers"] for name, r in results.items() if name not in FLOORS}
    if len(outputs) < 2:
        return
    (first, expected), *others = outputs.items()
    for name, output in others:
        for batch in sorted(expected.keys() & output.keys(), key=int):
            assert output[batch] == expected[batch], (
                f"{scenario}, batch {batch}: {name} put out {output[batch]} (rows, checksum), "
                f"{first} {expected[batch]}"
            )


def medians(rounds: list[dict[str, Any]]) -> Figures:
    names = [name for name in (*FIGURES, *RESTARTS) if name in rounds[0]]
    return {name: statistics.median(run[name] for run in rounds) for name in names}


def compared(runs: Runs) -> str:
    """The provider whose ratios to the others are printed."""
    return "cowstate" if "cowstate" in runs else next(iter(runs))


def ratios(runs: Runs, provider: str, *peers: str) -> Figures:
    """A provider's figures divided by a peer's figures, or by the faster of two peers, in the
    median round."""
    ours = runs[provider]
    theirs = list(zip(*(runs[peer] for peer in peers), strict=True))
    ratio_by_name = {}
    for name in medians(ours):
        least = [min(run.get(name, 0) for run in of_a_round) for of_a_round in theirs]
        pairs = list(zip((run[name] for run in ours), least, strict=True))
        if all(least):
            ratio_by_name[name] = statistics.median(value / other for value, other in pairs)
    return ratio_by_name


def ratios_by_peer(runs: Runs) -> dict[str, Figures]:
    ours = compared(runs)
    return {peer: ratios(runs, ours, peer) for peer in runs if peer != ours}


def verdicts(scenario: str, runs: Runs) -> list[str]:
    """The requirements of a scenario with the measured values, where all providers ran."""
    measured = ((needed, measure_of(needed, runs)) for needed in REQUIREMENTS)
    return [
        f"{needed.figure} of {needed.provider}{beside(needed.peers)}: "
        f"{value:.{2 if needed.peers else 0}f}, "
        f"at most {needed.at_most}: {'met' if value <= needed.at_most else 'MISSED'}"
        for needed, value in measured
        if needed.scenario == scenario and value is not None
    ]


def measure_of(needed: Requirement, runs: Runs) -> float | None:
    """The measured value of a requirement; None if a provider did not run or the figure was not
    measured."""
    if not {needed.provider, *needed.peers} <= runs.keys():
        return None
    if needed.peers:
        return ratios(runs, needed.provider, *needed.peers).get(needed.figure)
    return medians(runs[needed.provider]).get(needed.figure)


def beside(peers: tuple[str, ...]) -> str:
    """The divisor of a figure, as text; empty without peers."""
    faster = f"the faster of {' and '.join(peers)}" if len(peers) > 1 else "".join(peers)
    return f" / {faster}" if peers else ""


def share_of_syncing(runs: Runs) -> float:
    """The share of syncing in a batch without syncing, in the median round."""
    pairs = zip(runs["cowstate"], runs["unsynced"], strict=True)
    return statistics.median(
        (synced["commit_ms"] - unsynced["commit_ms"]) / CORES / unsynced["wall_ms"]
        for synced, unsynced in pairs
    )


def print_scenario(scenario: str, runs: Runs) -> None:
    figures = {provider: medians(of_one) for provider, of_one in runs.items()}
    columns = [name for name in (*FIGURES, *RESTARTS) if any(name in f for f in figures.values())]
    print(f"\n{scenario:20}" + "".join(f"{name:>{len(name) + 2}}" for name in columns))
    rows = [(name, row, "10.0f") for name, row in figures.items()]
    ours = compared(runs)
    rows += [(f"{ours} / {peer}", r, "10.2f") for peer, r in ratios_by_peer(runs).items()]
    for label, row, form in rows:
        cells = (
            f"{row[name]:{len(name) + 2}{form[2:]}}" if name in row else " " * (len(name) + 2)
            for name in columns
        )
        print(f"{label:20}" + "".join(cells))
    print("\n".join(verdicts(scenario, runs)))
    if {"cowstate", "unsynced"} <= runs.keys():
        print(f"share of syncing: {share_of_syncing(runs):.1%} of a batch")


def measure(scenario: str, task: Task, providers: list[str], rounds: int) -> dict[str, Any]:
    runs: Runs = {provider: [] for provider in providers}
    for number in range(rounds):
        in_turn = providers if number % 2 == 0 else providers[::-1]
        for provider in in_turn:
            print(f"{scenario}: round {number + 1}/{rounds}, {provider}", file=sys.stderr)
            provider_task = replace(
                task, scenario=scenario, provider=provider, checks_state=number == 0
            )
            runs[provider].append(run_scenario(provider_task))
        check_answers(scenario, {provider: runs[provider][-1] for provider in providers})
    for results in runs.values():
        for result in results:
            del result["answers"]
    figures = {provider: medians(results) for provider, results in runs.items()}
    print_scenario(scenario, runs)
    load = asdict(SCENARIOS[scenario].load.scaled(task.scale))
    return {"load": load, "median": figures, "ratio": ratios_by_peer(runs), "runs": runs}


def soak(task: Task, providers: list[str]) -> dict[str, Any]:
    runs = {}
    for provider in providers:
        runs[provider] = run_scenario(
            replace(task, phase="soak", scenario="soak", provider=provider)
        )
        shares = runs[provider]["last_quarter_of_first"]
        text = ", ".join(f"{name} {value:.2f}" for name, value in shares.items())
        print(f"soak, {provider}: last quarter / first: {text}")
    return runs


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__, "provider", rounds=3, scale=1.0, partitions=CORES, memory="8g")
    parser.add_argument("--scenario", nargs="+", choices=list(LETTERS), default=USUAL)
    parser.add_argument("--providers", nargs="+", choices=list(PROVIDERS))
    parser.add_argument("--warm", type=int, help="batches before those that are measured")
    parser.add_argument("--no-snapshots", action="store_true", help="no restart from snapshots")
    parser.add_argument("--free-memory", type=float, help="GiB that are free for all, about")
    parser.add_argument("--soak", action="store_true", help="the soak only; cowstate by default")
    parser.add_argument("--folder", type=Path, help="where checkpoints go; default: temporary")
    parser.set_defaults(out=None)
    return parser.parse_args()


def main() -> None:
    """Measure, print, and write the JSON."""
    given = arguments()
    out = given.out or HERE / "results" / f"provider{'-soak' if given.soak else ''}.json"
    with tempfile.TemporaryDirectory(prefix="cowstate-benchmark-", dir=given.folder) as name:
        floor_jar = Path(name) / "floor.jar"
        sources = [HERE / "scala" / f"{source}.scala" for source in SOURCES]
        compile_jar(sources, floor_jar)
        folder = str(Path(name) / "run")
        task = Task("run", "", "", given.scale, given.memory, folder, str(floor_jar))
        task = replace(task, partitions=given.partitions, warm=given.warm)
        task = replace(task, with_snapshots=not given.no_snapshots)
        names = ("scale", "memory", "partitions", "warm", "free_memory")
        result: dict[str, Any] = {name: getattr(given, name) for name in names}
        with free_memory_of(given.free_memory):
            if given.soak:
                result["soak"] = soak(task, given.providers or ["cowstate"])
            letters = [] if given.soak else given.scenario
            for scenario in (each for letter in letters for each in LETTERS[letter]):
                providers = given.providers or list(COMPARED)
                result[scenario] = measure(scenario, task, providers, given.rounds)
    write_results(out, result)


if __name__ == "__main__":
    main()
