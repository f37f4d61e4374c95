"""Which method of Spark's stands for a call, if there is one."""

from __future__ import annotations

from typing import Any

import pytest

from spark_state.spark.operator.operator_call import Api, OperatorCall
from tests.support.arrow_totals import ArrowTotals
from tests.support.processors import TOTALS_SCHEMA, RunningTotals


@pytest.mark.parametrize(
    ("api", "processor", "spark_method"),
    [
        ("rows", RunningTotals(), "transformWithState"),
        ("pandas", RunningTotals(), "transformWithStateInPandas"),
        ("arrow", ArrowTotals(), None),
    ],
)
def test_spark_has_a_method_for_rows_and_for_pandas_but_none_for_arrow_or_broadcast_streams(
    api: Api, processor: Any, spark_method: str | None
) -> None:
    arguments = (None, processor, TOTALS_SCHEMA, "update", "None")
    assert OperatorCall(api, *arguments).spark_method == spark_method
    streams: Any = {"rules": None}
    assert OperatorCall(api, *arguments, broadcast=streams).spark_method is None
