"""The query of docs/how-to/broadcast-rules.md judges payments by the newest rules."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.tables.table_jobs import run_to_the_end

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "broadcast-rules.md"


def documented() -> dict[str, Any]:
    code = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in code:
        exec(compile(block, str(PAGE), "exec", dont_inherit=True), names)
    return names


def write(folder: Path, number: int, *rows: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))


def test_payments_are_judged_by_the_newest_rules(spark: SparkSession, tmp_path: Path) -> None:
    payments, rules = tmp_path / "payments", tmp_path / "rules"
    alerts = documented()["alerts"]
    emitted = []

    def run() -> None:
        writer = alerts(spark, str(payments), str(rules)).writeStream
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.foreachBatch(lambda batch, _: emitted.extend(batch.collect()))
        run_to_the_end(query.trigger(availableNow=True).start())

    write(payments, 0, {"card": "a", "country": "de", "amount": 90.0})
    write(rules, 0, {"country": "de", "version": 1, "most": 100.0})
    run()
    assert emitted == []
    write(payments, 1, {"card": "a", "country": "de", "amount": 150.0})
    run()
    assert [tuple(row) for row in emitted] == [("a", 150.0, 100.0, 240.0)]
    write(payments, 2, {"card": "b", "country": "de", "amount": 60.0})
    newer = [{"country": "de", "version": n, "most": 10.0 * n} for n in (5, 4)]
    write(rules, 1, *newer)
    run()
    assert [tuple(row) for row in emitted[1:]] == [("b", 60.0, 50.0, 60.0)]
