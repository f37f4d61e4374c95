"""Each value of a state has one Python form, and a value that does not fit is refused."""

from __future__ import annotations

import datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row

from spark_state.errors import StateValueError
from spark_state.processor.rows import STATE_FORMS
from spark_state.serializers import StructSerializer

UTC = datetime.UTC
LONG_AND_NAME = pa.struct([pa.field("n", pa.int64()), pa.field("name", pa.string())])


def serializer_of(*types: pa.DataType) -> StructSerializer:
    fields = [pa.field(f"f{index}", value_type) for index, value_type in enumerate(types)]
    return StructSerializer(pa.struct(fields), "state 's'", STATE_FORMS)


def round_trip(serializer: StructSerializer, value: Any) -> Any:
    state = serializer.to_state(value)
    return serializer.from_arrow(serializer.to_arrow([state]))[0]


VALUES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.bool_(), True, True),
    (pa.int8(), -128, -128),
    (pa.int64(), np.int64(7), 7),
    (pa.float64(), 3, 3.0),
    (pa.float32(), 0.1, 0.10000000149011612),
    (pa.string(), "ü", "ü"),
    (pa.binary(), bytearray(b"ab"), b"ab"),
    (pa.decimal128(10, 2), Decimal("1.5"), Decimal("1.50")),
    (pa.decimal128(38, 1), Decimal("9" * 37 + ".5"), Decimal("9" * 37 + ".5")),
    (pa.date32(), datetime.date(2020, 1, 2), datetime.date(2020, 1, 2)),
    (pa.timestamp("us"), datetime.datetime(2020, 1, 1, 3), datetime.datetime(2020, 1, 1, 3)),
    (pa.list_(pa.int32()), [1, None, 2], [1, None, 2]),
    (pa.map_(pa.string(), pa.float32()), {"a": 0.1}, {"a": 0.10000000149011612}),
    (LONG_AND_NAME, {"n": 1, "name": "x"}, Row(n=1, name="x")),
    (pa.list_(LONG_AND_NAME), [(1, "x")], [Row(n=1, name="x")]),
    (pa.duration("us"), datetime.timedelta(seconds=1), datetime.timedelta(seconds=1)),
    (pa.duration("us"), pd.Timedelta(seconds=-1, microseconds=5), datetime.timedelta(0, -1, 5)),
    (pa.duration("us"), np.timedelta64(7, "ms"), datetime.timedelta(milliseconds=7)),
    (pa.duration("us"), datetime.timedelta.resolution, datetime.timedelta(microseconds=1)),
    (pa.list_(pa.duration("us")), [datetime.timedelta(1), None], [datetime.timedelta(1), None]),
    (
        pa.map_(pa.duration("us"), pa.duration("us")),
        {pd.Timedelta(1, "D"): datetime.timedelta(2)},
        {datetime.timedelta(1): datetime.timedelta(2)},
    ),
    (
        pa.struct([pa.field("d", pa.duration("us"))]),
        (datetime.timedelta(-1),),
        Row(d=datetime.timedelta(-1)),
    ),
    (pa.timestamp("us"), pd.Timestamp(2020, 1, 1, 3), datetime.datetime(2020, 1, 1, 3)),
    (pa.timestamp("us"), np.datetime64("2020-01-01T03", "ns"), datetime.datetime(2020, 1, 1, 3)),
    (pa.timestamp("us"), np.datetime64("NaT"), None),
    (pa.date32(), datetime.datetime(2020, 1, 2), datetime.date(2020, 1, 2)),
    (pa.date32(), pd.Timestamp(2020, 1, 2), datetime.date(2020, 1, 2)),
    (pa.date32(), np.datetime64("2020-01-02"), datetime.date(2020, 1, 2)),
    (pa.binary(), "ü", b"\xc3\xbc"),
    (pa.string(), 5, "5"),
    (pa.string(), True, "true"),
    (pa.string(), Decimal("1E+3"), "1E+3"),
    (pa.string(), Decimal("-0.0"), "0.0"),
    (pa.decimal128(10, 2), Decimal("1.005"), Decimal("1.01")),
    (pa.decimal128(10, 2), Decimal("-1.005"), Decimal("-1.01")),
    (pa.decimal128(10, 2), Decimal("1.0049999"), Decimal("1.00")),
    (pa.list_(pa.decimal128(3, 0)), [Decimal("2.5")], [Decimal(3)]),
    (pa.decimal128(10, 2), Decimal("NaN"), None),
    (pa.int64(), float("nan"), None),
    (pa.int32(), np.float64("nan"), None),
    (pa.bool_(), float("nan"), None),
    (pa.binary(), Decimal("NaN"), None),
    (pa.date32(), float("nan"), None),
    (pa.timestamp("us"), float("nan"), None),
    (pa.string(), float("nan"), "NaN"),
    (pa.list_(pa.int64()), float("nan"), None),
    (pa.map_(pa.string(), pa.int64()), float("nan"), None),
    (pa.struct([("x", pa.int64())]), float("nan"), None),
    (pa.list_(pa.int64()), [1, float("nan"), pd.NA], [1, None, None]),
    (
        pa.list_(pa.timestamp("us")),
        np.array(["2020-01-01", "NaT"], "M8[ns]"),
        [datetime.datetime(2020, 1, 1), None],
    ),
    (pa.int64(), pd.NA, None),
    (pa.float64(), pd.NA, None),
    (pa.string(), pd.NA, None),
    (LONG_AND_NAME, pd.NA, None),
    (pa.list_(LONG_AND_NAME), np.datetime64("NaT"), None),
    (pa.float64(), 2**53, 2.0**53),
    (pa.map_(pa.string(), pa.int32()), [("a", 1)], {"a": 1}),
    (pa.map_(pa.string(), pa.int32()), (["a", None],), {"a": None}),
    (pa.map_(LONG_AND_NAME, pa.int32()), [({"name": "x", "n": 1}, 2)], {Row(n=1, name="x"): 2}),
    (LONG_AND_NAME, Row(name=1, n="x"), Row(n=1, name="x")),  # matched by position, as in Spark
    (LONG_AND_NAME, {"name": "x", "other": 1}, Row(n=None, name="x")),
    (LONG_AND_NAME, SimpleNamespace(name="x", n=1), Row(n=1, name="x")),
    (pa.list_(pa.null()), [None, None], [None, None]),
    (pa.null(), None, None),
    (pa.string(), None, None),
]


@pytest.mark.parametrize(("value_type", "value", "expected"), VALUES)
def test_a_value_has_one_form_before_and_after_a_restore(
    value_type: pa.DataType, value: Any, expected: Any
) -> None:
    serializer = serializer_of(value_type)
    assert serializer.to_state((value,)) == (expected,)
    restored = round_trip(serializer, (value,))
    assert restored == (expected,)
    assert type(restored[0]) is type(serializer.to_state((value,))[0])


NOON = datetime.datetime(2020, 7, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("moment", [NOON, pd.Timestamp(NOON)])
def test_an_aware_timestamp_becomes_naive_local_time_as_in_spark(
    moment: datetime.datetime,
) -> None:
    serializer = serializer_of(pa.timestamp("us", "UTC"))
    local = NOON.astimezone().replace(tzinfo=None)
    (state,) = serializer.to_state((moment,))
    assert (state, type(state)) == (local, datetime.datetime)
    assert round_trip(serializer, (moment,)) == (local,)
    assert serializer.to_arrow([(local,)]).field(0)[0].as_py() == NOON


REFUSED: list[tuple[pa.DataType, Any]] = [
    (pa.bool_(), 1),
    (pa.int8(), 128),
    (pa.int64(), True),
    (pa.int64(), 1.5),
    (pa.int64(), "1"),
    (pa.float64(), "x"),
    (pa.float32(), 1e300),
    (pa.string(), b"x"),
    (pa.decimal128(4, 2), Decimal(100)),
    (pa.decimal128(4, 2), 1.5),
    (pa.decimal128(4, 2), Decimal("sNaN")),
    (pa.decimal128(4, 2), Decimal("-Infinity")),
    (pa.date32(), datetime.datetime(2020, 1, 1, 0, 0, 1)),
    (pa.date32(), datetime.datetime(2020, 1, 1, tzinfo=UTC)),
    (pa.date32(), pd.Timestamp("2020-01-01 00:00:00.000000001")),
    (pa.float64(), 2**53 + 1),
    (pa.float32(), 2**24 + 1),
    (pa.int64(), 1.0),
    (pa.int64(), np.timedelta64(5, "ns")),
    (pa.string(), 1.5),
    (pa.string(), datetime.date(2020, 1, 1)),
    (pa.binary(), "\ud800"),
    (pa.decimal128(4, 2), Decimal("99.995")),
    (pa.map_(pa.string(), pa.int32()), [("a", 1), ("a", 2)]),
    (pa.map_(pa.string(), pa.int32()), ["ab"]),
    (pa.map_(pa.int32(), pa.int32()), {None: 1}),
    (pa.map_(pa.int32(), pa.int32()), {float("nan"): 1}),
    (pa.timestamp("us", "UTC"), np.datetime64(1, "ns")),
    (pa.timestamp("us"), datetime.datetime(2020, 1, 1, tzinfo=UTC)),
    (pa.timestamp("us", "UTC"), 0),
    (pa.timestamp("us", "UTC"), datetime.datetime(1, 1, 1, tzinfo=UTC)),
    (pa.list_(pa.int32()), "abc"),
    (pa.list_(pa.int32()), ["a"]),
    (LONG_AND_NAME, (1,)),
    (pa.duration("us"), 1),
    (pa.duration("us"), pd.NaT),
    (pa.duration("us"), pd.Timedelta(1, "ns")),
    (pa.timestamp("us"), pd.NaT),
    (pa.timestamp("us"), pd.Timestamp("2020-01-01T00:00:00.000000001")),
    (pa.null(), 0),
]


@pytest.mark.parametrize(("value_type", "value"), REFUSED)
def test_a_value_that_does_not_fit_is_refused_with_field_value_and_type(
    value_type: pa.DataType, value: Any
) -> None:
    with pytest.raises(StateValueError) as caught:
        serializer_of(value_type).to_state((value,))
    message = str(caught.value)
    assert "state 's': field 'f0'" in message
    assert repr(value) in message
    assert str(value_type) in message


def test_the_edge_of_the_years_is_named() -> None:
    moment = datetime.datetime(1, 1, 1, tzinfo=UTC)
    with pytest.raises(StateValueError, match="the edge of years 1 to 9999"):
        serializer_of(pa.timestamp("us", "UTC")).to_state((moment,))
