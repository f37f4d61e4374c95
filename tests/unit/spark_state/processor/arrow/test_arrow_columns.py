"""Columns from an Arrow processor convert without changing a value, or are an error."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_state.errors import StateValueError
from spark_state.processor.arrow.columns import numbers_of, struct_of

LARGEST = 2**63 - 1
FLOAT, DECIMAL = pa.float32(), pa.decimal128(10, 2)


def one_column(given: Any, wanted: pa.DataType, *, nullable: bool = True) -> list[Any]:
    struct_type = pa.struct([pa.field("x", wanted, nullable=nullable)])
    return struct_of(given, struct_type, "state 's'").field(0).to_pylist()


@pytest.mark.parametrize(
    ("given", "wanted", "values"),
    [
        (pa.array([1, None], pa.int8()), pa.int64(), [1, None]),
        (pa.array([1.0, None]), pa.int64(), [1, None]),
        (pa.array([0.1, float("inf")]), FLOAT, [float(np.float32(0.1)), float("inf")]),
        (pa.array([1, 99_999_999, None]), DECIMAL, [Decimal(1), Decimal(99_999_999), None]),
        (pa.array([0.25, None]), DECIMAL, [Decimal("0.25"), None]),
        (pa.array([Decimal("1.10")]), pa.float64(), [1.1]),
        (pa.array([Decimal("1.100")]), DECIMAL, [Decimal("1.10")]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), pa.string(), ["a", "b", "a"]),
        (pa.array(["a"], pa.large_string()), pa.string(), ["a"]),
        (pa.array([None, None]), pa.string(), [None, None]),
        (pa.array([9, 8, 7]).slice(1), pa.int64(), [8, 7]),
        (pa.chunked_array([[1], [], [2]]), pa.int64(), [1, 2]),
        (np.array([True, False]), pa.bool_(), [True, False]),
        (
            pa.array([datetime.datetime(2026, 1, 2)], pa.timestamp("s")),
            pa.timestamp("us"),
            [datetime.datetime(2026, 1, 2)],
        ),
        (pa.array([[1], None], pa.large_list(pa.int8())), pa.list_(pa.int64()), [[1], None]),
    ],
)
def test_values_stay_what_they_are_in_another_type(given: Any, wanted: Any, values: Any) -> None:
    assert one_column(given, wanted) == values


@pytest.mark.parametrize(
    ("given", "wanted", "reason"),
    [
        (pa.array([1e300]), FLOAT, "1e[+]300 is not one of its values"),
        (pa.array([0.125, 1.0]), DECIMAL, "0.125 is not one of its values"),
        (pa.array([Decimal("1.10000000000000000001")]), pa.float64(), "1.1000.* is not one of"),
        (pa.array([Decimal("1.101")]), DECIMAL, "data loss"),
        (pa.array([10**8]), DECIMAL, "fit in precision"),
        (pa.array([1.5]), pa.int64(), "1.5"),
        (pa.array([300]), pa.int8(), "300"),
        (pa.array([2**60 + 1]), pa.float64(), str(2**60 + 1)),
        (pa.array([1]), pa.string(), "got int64$"),
        (pa.array(["1"]), pa.int64(), "got string$"),
        (pa.array([1]), pa.bool_(), "got int64$"),
        (pa.array([[1e300]]), pa.list_(FLOAT), "got list<item: double>$"),
        (pa.table({"x": [{"a": 1}]}), pa.struct([("b", pa.int64())]), "got struct<a: int64>$"),
    ],
)
def test_a_value_that_would_change_is_refused(given: Any, wanted: Any, reason: str) -> None:
    with pytest.raises(StateValueError, match=f"state 's': column 'x' expects .*{reason}"):
        one_column(given, wanted)


@pytest.mark.parametrize(
    "given",
    [
        pa.array(["a", None]),
        pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None])),
    ],
)
def test_a_null_is_refused_where_there_must_be_none(given: Any) -> None:
    with pytest.raises(StateValueError, match="column 'x' must not have nulls"):
        one_column(given, pa.string(), nullable=False)


def test_columns_are_matched_by_name_and_those_of_one_name_by_their_places() -> None:
    struct_type = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    given = pa.table({"b": [2], "a": [1]})
    assert struct_of(given, struct_type, "x").to_pylist() == [{"a": 1, "b": 2}]
    twice = pa.struct([("a", pa.int64()), ("a", pa.int64())])
    columns = [pa.array([1]), pa.array([2])]
    both = struct_of(pa.table(columns, names=["a", "a"]), twice, "x").flatten()
    assert [column.to_pylist() for column in both] == [[1], [2]]
    thrice = pa.struct([*twice, ("b", pa.int64())])
    with pytest.raises(StateValueError, match="the columns are b, a, a, not a int64, a int64"):
        struct_of(pa.table([*columns, columns[0]], names=["b", "a", "a"]), thrice, "x")


@pytest.mark.parametrize("given", [[2**63], ["soon"], [1, None], object(), [[1]]])
def test_what_is_no_time_is_refused(given: Any) -> None:
    with pytest.raises(StateValueError, match="timers: "):
        numbers_of(given, "timers")
    assert numbers_of([1, LARGEST], "timers").to_pylist() == [1, LARGEST]
