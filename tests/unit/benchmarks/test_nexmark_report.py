"""The report on Nexmark shows medians, ratios of the same round, and what did not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.benchmarks.nexmark.report import Results, plot, reasons, table


def rounds(*cpu_s: float) -> list[dict[str, Any]]:
    return [{"cpu_s": cpu, "wall_s": 1.0, "checkpoint_mb": 2.0, "peak_mb": 3000.0} for cpu in cpu_s]


RESULTS: Results = {
    "q3": {"cowstate": rounds(10, 20, 30), "flink_heap": rounds(5, 40, 15)},
    "q11": {
        "cowstate": rounds(10),
        "flink_heap": rounds(20),
        "python_heap": rounds(4),
        "row_api": rounds(40),
    },
}


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds() -> None:
    lines = table(RESULTS, events=1000).splitlines()
    assert "| q3 | flink_heap | 67 | 2.00 | 15.0 | 1.0 | 2.0 | 3,000.0 |" in lines
    assert "| q3 | cowstate | 50 | 1.00 | 20.0 | 1.0 | 2.0 | 3,000.0 |" in lines


def test_processors_are_compared_with_the_processors_of_cowstate() -> None:
    assert "| q11 | row_api | 25 | 0.10 | 40.0 |" in table(RESULTS, events=1000)


def test_the_mean_of_an_engine_is_the_geometric_one_of_its_queries() -> None:
    means = [line for line in table(RESULTS, events=1000).splitlines() if "mean" in line]
    assert means == [
        "| mean of 2 | flink_heap | | 1.00 | | | | |",
        "| mean of 1 | row_api | | 0.10 | | | | |",
    ]


def test_engines_with_the_same_reason_share_a_line() -> None:
    refused = {"cowstate": {"q9": "no ranks"}, "hdfs": {"q9": "no ranks", "q15": "no distinct"}}
    assert reasons(refused).splitlines() == [
        "q9 does not run on cowstate, hdfs: no ranks",
        "q15 does not run on hdfs: no distinct",
    ]


def test_the_chart_has_a_panel_for_each_group_that_ran(tmp_path: Path) -> None:
    sizes = []
    for results in (RESULTS, {"q3": RESULTS["q3"]}):
        plot(results, tmp_path / "chart.png")
        sizes.append((tmp_path / "chart.png").read_bytes()[20:24])
    both, one = (int.from_bytes(size) for size in sizes)
    assert both == 2 * one
