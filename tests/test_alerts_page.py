"""The rules of docs/how-to/alerts.md name metrics that cowstate and the page's listener have."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from spark_state.spark.progress.operator_collector import OperatorCollector

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/how-to/alerts.md").read_text(encoding="utf-8")
OPERATORS, PROVIDER = (
    [rule for group in yaml.safe_load(block)["groups"] for rule in group["rules"]]
    for block in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)
)
METRICS_OF_PROVIDER = ROOT / "spark_state/jvm/provider/CowStateMetrics.scala"


def test_rules_of_operators_name_metrics_of_the_server() -> None:
    metrics = [*OperatorCollector(list, subtasks=False).describe()]
    served = {m.name if m.type == "gauge" else f"{m.name}_total" for m in metrics}
    named = {name for rule in OPERATORS for name in re.findall(r"cowstate_\w+", rule["expr"])}
    assert named
    assert named <= served


def test_rules_of_the_provider_name_metrics_of_the_provider_and_the_listener() -> None:
    expressions = " ".join(rule["expr"] for rule in PROVIDER)
    fields = re.search(r"^FIELDS = \((.*)\)$", PAGE, re.M)
    assert fields is not None
    known = re.findall(r'"(\w+)"', fields[1] + METRICS_OF_PROVIDER.read_text(encoding="utf-8"))
    assert set(re.findall(r'metric="(\w+)"', expressions)) <= {*known}
    assert set(re.findall(r"query_\w+", expressions)) <= {*re.findall(r'Gauge\("(\w+)"', PAGE)}


def test_each_alert_is_explained() -> None:
    explained = re.findall(r"^\| `(\w+)` \|", PAGE, re.M)
    assert explained == [rule["alert"] for rule in (*OPERATORS, *PROVIDER)]
