"""The key groups of whole columns equal the key groups of single keys: of columns with one row."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_state.errors import KeyGroupError
from spark_state.key_group_assignment import KeyType
from spark_state.key_group_hash import KeyGroupAssignment, arrow_type_of, key_groups_of

Column = tuple[str, list[Any]]


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    edges = [0, 1, -1, 127, 128, -128, -129, 255, 256, -(1 << 31), most, -most]
    unscaled = st.sampled_from(edges) | st.integers(-most, most)
    return unscaled.map(
        lambda value: Decimal((value < 0, tuple(map(int, str(abs(value)))), -scale))
    )


_ARRAYS, _STRUCTS = "array<array<string>>", "struct<n:int,t:string>"
KEY_TYPES: dict[str, KeyType] = {
    _ARRAYS: {"type": "array", "elementType": {"type": "array", "elementType": "string"}},
    _STRUCTS: {
        "type": "struct",
        "fields": [{"name": "n", "type": "integer"}, {"name": "t", "type": "string"}],
    },
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "byte": integers(8),
    "short": integers(16),
    "integer": integers(32),
    "long": integers(64),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(datetime.UTC)),
    "timestamp_ntz": st.datetimes(),
    "interval day to second": st.timedeltas(
        -datetime.timedelta(days=100_000_000), datetime.timedelta(days=100_000_000)
    ),
    "interval hour": st.timedeltas().map(
        lambda value: datetime.timedelta(hours=value.days % 1_000_000)
    ),
    "float": st.floats(width=32),
    "double": st.floats() | st.sampled_from([-0.0, 0.0, math.nan, -math.nan]),
    "string": st.text(max_size=40),
    "binary": st.binary(max_size=100),
    "decimal(10,2)": decimals(10, 2),
    "decimal(18,0)": decimals(18, 0),
    "decimal(19,4)": decimals(19, 4),
    "decimal(38,10)": decimals(38, 10),
    _ARRAYS: st.lists(
        st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3), max_size=4
    ),
    _STRUCTS: st.fixed_dictionaries({"n": st.none() | integers(32), "t": st.none() | st.text()}),
}


@st.composite
def keys(draw: st.DrawFn) -> list[Column]:
    rows = draw(st.integers(0, 12))
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    return [
        (name, draw(st.lists(st.none() | VALUES[name], min_size=rows, max_size=rows)))
        for name in names
    ]


@given(
    columns=keys(),
    max_parallelism=st.sampled_from([1, 2, 7, 128, 1000, 32_768]),
    skipped=st.integers(0, 3),
)
def test_columns_have_the_key_groups_of_their_rows(
    columns: list[Column], max_parallelism: int, skipped: int
) -> None:
    types = [KEY_TYPES.get(name, name) for name, _ in columns]
    arrays = [
        pa.array(values, arrow_type_of(key_type))[skipped:]
        for key_type, (_, values) in zip(types, columns, strict=True)
    ]
    one_by_one = KeyGroupAssignment(types, max_parallelism)
    rows = list(zip(*(values for _, values in columns), strict=True))[skipped:]
    groups = key_groups_of(arrays, types, max_parallelism)
    assert groups.dtype == np.int32
    assert groups.tolist() == [one_by_one.key_group(row) for row in rows]


@pytest.mark.parametrize(
    ("type_name", "bits"),
    [
        ("float", np.array([0x7FC00000, 0xFFC00001, 0x7F800001], "<u4").view("<f4")),
        ("double", np.array([0x7FF8 << 48, (0xFFF8 << 48) + 1, 0x7FF1 << 48], "<u8").view("<f8")),
    ],
)
def test_every_nan_has_the_key_group_of_nan(type_name: str, bits: Any) -> None:
    nan = KeyGroupAssignment([type_name], 32_768).key_group((math.nan,))
    assert key_groups_of([pa.array(bits)], [type_name], 32_768).tolist() == [nan] * 3


def test_columns_as_spark_delivers_them_are_hashed_as_their_spark_type() -> None:
    moment = datetime.datetime(2013, 1, 1, 5, 17, tzinfo=datetime.UTC)
    cases: list[tuple[str, pa.Array[Any], Any]] = [
        ("timestamp", pa.array([moment], pa.timestamp("us", "America/New_York")), moment),
        ("string", pa.array(["N14228"], pa.large_string()), "N14228"),
        ("string", pa.array(["N14228"]).dictionary_encode(), "N14228"),
    ]
    for type_name, column, value in cases:
        expected = KeyGroupAssignment([type_name], 1000).key_group((value,))
        assert key_groups_of([column], [type_name], 1000).tolist() == [expected]


def test_a_column_of_nulls_leaves_the_seed() -> None:
    assert key_groups_of([pa.nulls(2, pa.int64())], ["long"], 1000).tolist() == [42, 42]
    assert key_groups_of([pa.nulls(2)], ["string"], 1000).tolist() == [42, 42]


def test_a_type_without_a_stable_hash_is_refused() -> None:
    with pytest.raises(KeyGroupError, match="'variant' has no stable hash"):
        key_groups_of([pa.array([1])], ["variant"], 128)


def test_a_column_of_another_type_is_refused() -> None:
    with pytest.raises(KeyGroupError, match="type integer cannot be hashed: its values are string"):
        key_groups_of([pa.array(["a"])], ["integer"], 128)
