"""The Arrow processor shown in the docs does what its page says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import Row

from spark_state.testing import ScriptedOperator

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "handle-arrow-batches.md"
HOUR = 3_600_000


def test_the_processor_of_the_page_counts_and_forgets_after_an_hour() -> None:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("```python\n")
    source, _, _ = rest.partition("```")
    names: dict[str, Any] = {"__name__": "a_job"}
    exec(compile(source, str(PAGE), "exec"), names)
    with ScriptedOperator(
        names["Spending"](),
        rows="card string, amount double",
        key="card",
        output="card string, payments long, total double",
        time_mode="ProcessingTime",
    ) as operator:
        first = operator.batch([("a", 1.0), ("b", 2.0), ("a", 3.0)], at=0)
        assert first == [Row(card="a", payments=2, total=4.0), Row(card="b", payments=1, total=2.0)]
        operator.restart(parallelism=3)
        assert operator.batch([("a", 1.0)], at=HOUR - 1) == [Row(card="a", payments=3, total=5.0)]
        assert operator.batch(at=HOUR) == []
        assert operator.timers() == {"a": [2 * HOUR - 1]}
        assert set(operator.state("spent")) == {"a"}
