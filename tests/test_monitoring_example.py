"""The alert rules and the dashboard of the example `monitoring` use metrics that cowstate has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.registry import Collector

from spark_state.spark.progress.operator_collector import OperatorCollector
from spark_state.spark.progress.query_collector import QueryCollector

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples/kafka/monitoring"
PAGE = (ROOT / "docs/how-to/alerts.md").read_text(encoding="utf-8")
RULES = [
    rule
    for group in yaml.safe_load((EXAMPLE / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((EXAMPLE / "dashboard.json").read_text())
METRICS_OF_PROVIDER = ROOT / "spark_state/jvm/provider/CowStateMetrics.scala"


def panels() -> Iterator[dict[str, Any]]:
    """The panels of the dashboard, without the headings."""
    return (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def expressions() -> list[str]:
    """The expressions of all rules and panels."""
    targets = (target for panel in panels() for target in panel["targets"])
    return [*(rule["expr"] for rule in RULES), *(target["expr"] for target in targets)]


def served(*collectors: Collector) -> set[str]:
    """The names of the metrics of collectors, as a scrape shows the names."""
    metrics = [metric for collector in collectors for metric in collector.describe()]
    return {m.name if m.type == "gauge" else f"{m.name}_total" for m in metrics}


def test_expressions_name_metrics_of_the_server() -> None:
    named = {name for text in expressions() for name in re.findall(r"cowstate_\w+", text)}
    assert named
    assert named <= served(OperatorCollector(list, subtasks=False), QueryCollector(list))


def test_expressions_name_metrics_of_the_provider() -> None:
    known = re.findall(r'"(\w+)"', METRICS_OF_PROVIDER.read_text(encoding="utf-8"))
    patterns = {
        pattern for text in expressions() for pattern in re.findall(r'metric=~?"([^"]+)"', text)
    }
    assert patterns
    for pattern in patterns:
        assert any(re.fullmatch(pattern, name) for name in known), pattern


def test_each_alert_is_explained() -> None:
    explained = re.findall(r"^\| `(\w+)` \|", PAGE, re.M)
    assert explained == [rule["alert"] for rule in RULES]


def test_each_panel_is_explained_and_has_a_place_of_its_own() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    titles = [panel["title"] for panel in panels()]
    assert len(set(titles)) == len(titles)
    assert all(panel["description"].endswith(".") for panel in panels())
    taken = set[tuple[int, int]]()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        columns, lines = range(place["x"], place["x"] + place["w"]), range(place["h"])
        cells = {(column, place["y"] + line) for column in columns for line in lines}
        assert not cells & taken
        taken |= cells
    assert {column for column, _ in taken} == set(range(24))


def test_the_slow_query_page_names_panels_of_the_dashboard() -> None:
    page = (ROOT / "docs/how-to/slow-query.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if "panel" in line]
    named = {name for line in lines for name in re.findall(r"\*([A-Z][^*]+)\*", line)}
    assert named
    assert named <= {panel["title"] for panel in panels()}


def test_promtool_accepts_the_rules_and_the_expressions(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool: apt-get install prometheus")
    recorded = [
        {"record": f"expression_{number}", "expr": text.replace("$query", ".*")}
        for number, text in enumerate(expressions())
    ]
    of_panels = tmp_path / "panels.yml"
    of_panels.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    for command in (
        ("check", "rules", EXAMPLE / "alerts.yml"),
        ("check", "rules", of_panels),
        ("check", "config", EXAMPLE / "prometheus.yml"),
    ):
        checked = subprocess.run((promtool, *command), capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr
