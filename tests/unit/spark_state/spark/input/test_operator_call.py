"""A call names the equivalent method of Spark, if any, and missing protobuf is reported."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import google.protobuf
import pytest
from google.protobuf import runtime_version

from spark_state.spark.input.operator_call import Api, OperatorCall, lacks_protobuf
from tests.support.processors.arrow_totals import ArrowTotals
from tests.support.processors.processors import TOTALS_SCHEMA, RunningTotals

MESSAGES = "pyspark.sql.streaming.proto.StateMessage_pb2"


def test_sparks_operator_lacks_nothing_where_protobuf_is() -> None:
    assert lacks_protobuf() is None


@pytest.mark.parametrize("module", ["runtime_version", "descriptor"])
def test_a_missing_protobuf_is_told(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.delitem(sys.modules, MESSAGES, raising=False)
    import_module(f"google.protobuf.{module}")  # sets the attribute deleted below
    monkeypatch.delattr(google.protobuf, module)
    monkeypatch.setitem(sys.modules, f"google.protobuf.{module}", None)
    problem = lacks_protobuf()
    assert problem is not None
    assert module in problem


def test_a_protobuf_that_is_too_old_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, MESSAGES, raising=False)
    monkeypatch.setattr(runtime_version, "MAJOR", 5)
    problem = lacks_protobuf()
    assert problem is not None
    assert "gencode" in problem


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
