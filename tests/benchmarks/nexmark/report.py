"""The report on Nexmark: a table, and a chart. Imports no engine."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.benchmark_script import subplots

GROUPS = {
    "cowstate": ("cowstate", "disk", "rocksdb", "hdfs", "floor", "flink_heap", "flink_rocksdb"),
    "python_heap": ("python_heap", "python_rocksdb", "row_api", "pyflink_heap", "pyflink_rocksdb"),
}
"""Engines that are compared, by the engine of cowstate that they are compared with."""
TITLES = {
    "cowstate": "Nexmark in SQL: events a second and core, the provider of cowstate = 1",
    "python_heap": "Nexmark as Python processors: events a second and core, cowstate = 1",
}
LABELS = {
    "disk": "cowstate, disk",
    "rocksdb": "Spark, RocksDB",
    "hdfs": "Spark, HDFSBacked",
    "floor": "Spark with a store that does nothing",
    "flink_heap": "Flink, heap",
    "flink_rocksdb": "Flink, RocksDB",
    "python_rocksdb": "cowstate, RocksDB",
    "row_api": "Spark's row API",
    "pyflink_heap": "PyFlink, heap",
    "pyflink_rocksdb": "PyFlink, RocksDB",
}
"""The names of engines in the chart."""
TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2)
COLUMNS = ("cpu_s", "wall_s", "checkpoint_mb", "peak_mb")

Rounds = list[dict[str, Any]]
Results = dict[str, dict[str, Rounds]]
"""The figures of each round, by query and engine."""


def table(results: Results, events: int) -> str:
    """The medians of the rounds in Markdown: a line for each query and engine, and the geometric
    means of each engine's ratios. A ratio is of the same round."""
    lines = [
        "| query | engine | events/s/core | ratio | CPU s | wall s | checkpoint MB | memory MB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for peer, engines in GROUPS.items():
        for query, by_engine in results.items():
            for engine in (engine for engine in engines if engine in by_engine):
                rounds = by_engine[engine]
                shown = [f"{_median(rounds, column):,.1f}" for column in COLUMNS]
                speed = statistics.median(events / each["cpu_s"] for each in rounds)
                ratio = speed_ratio(by_engine, engine, peer)
                cells = [query, engine, f"{speed:,.0f}", _text(ratio), *shown]
                lines.append(f"| {' | '.join(cells)} |")
        for engine in engines:
            ratios = [*_ratios(results, engine, peer)]
            if ratios and engine != peer:
                mean = statistics.geometric_mean(ratios)
                lines.append(f"| mean of {len(ratios)} | {engine} | | {mean:.2f} | | | | |")
    return "\n".join(lines)


def reasons(refused: dict[str, dict[str, str]]) -> str:
    """A line for each query that engines do not run, with the reason. `refused`: the reasons by
    engine and query."""
    engines: dict[tuple[str, str], list[str]] = {}
    for engine, by_query in refused.items():
        for query, reason in by_query.items():
            engines.setdefault((query, reason), []).append(engine)
    return "\n".join(
        f"{query} does not run on {', '.join(names)}: {reason}"
        for (query, reason), names in engines.items()
    )


def speed_ratio(by_engine: dict[str, Rounds], engine: str, peer: str) -> float | None:
    """Events a second and core of an engine, divided by those of the peer; None without a peer."""
    if peer not in by_engine:
        return None
    pairs = zip(by_engine[engine], by_engine[peer], strict=True)
    return statistics.median(theirs["cpu_s"] / own["cpu_s"] for own, theirs in pairs)


def plot(results: Results, path: Path) -> None:
    """Plot the ratios of events a second and core, with a panel for each group of engines."""
    panels = {
        peer: [query for query in results if peer in results[query]]
        for peer in GROUPS
        if any(peer in by_engine for by_engine in results.values())
    }
    figure, axes = subplots(len(panels), 1, (12, 4 * len(panels)))
    for axis, (peer, queries) in zip(_each(axes), panels.items(), strict=True):
        engines = [e for e in GROUPS[peer] if e != peer and any(e in results[q] for q in queries)]
        width = 0.8 / max(1, len(engines))
        for number, engine in enumerate(engines):
            places = [at for at, query in enumerate(queries) if engine in results[query]]
            ratios = [speed_ratio(results[queries[at]], engine, peer) for at in places]
            heights = [ratio - 1 for ratio in ratios if ratio is not None]
            starts = [at + number * width - 0.4 + width / 2 for at in places]
            axis.bar(starts, heights, width, bottom=1, label=LABELS[engine])
        axis.axhline(1, color="black", linewidth=1)
        axis.set_yscale("log")
        axis.set_ylim(0.025, 2.5)
        axis.set_yticks(TICKS, map(str, TICKS))
        axis.set_yticks([], minor=True)
        axis.set_xticks(range(len(queries)), queries)
        axis.set(title=TITLES[peer], ylabel="below 1: slower than cowstate")
        axis.legend(fontsize=8, ncols=3, loc="lower left")
    figure.savefig(path, dpi=110)


def _ratios(results: Results, engine: str, peer: str) -> Iterator[float]:
    for by_engine in results.values():
        ratio = speed_ratio(by_engine, engine, peer) if engine in by_engine else None
        if ratio is not None:
            yield ratio


def _each(axes: Any) -> Sequence[Any]:
    """The axes of a figure with one panel or more."""
    return [*axes.flat] if hasattr(axes, "flat") else [axes]


def _median(rounds: Rounds, column: str) -> float:
    return statistics.median(each[column] for each in rounds)


def _text(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"
