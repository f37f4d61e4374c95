"""Grouping puts the rows of a key together, in Spark's order, for every type of key."""

from __future__ import annotations

import datetime
import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.processor.input.key_grouping import InputLayout, group_by_key

UTC = pa.timestamp("us", "UTC")
MOMENT = datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC)


def grouped(columns: dict[str, Any], keys: list[str]) -> list[tuple[Any, int, list[int]]]:
    """Return (key, key group, positions of the key's rows) in order; a row's key group is its
    number."""
    length = len(next(iter(columns.values())))
    table = pa.table(
        {**columns, "position": pa.array(range(length)), "group": pa.array(range(length))}
    )
    names = tuple(table.column_names[:-1])
    layout = InputLayout(names, tuple(names.index(key) for key in keys))
    types = tuple(columns[key].type for key in keys)
    keyed = group_by_key(table, layout, KeyColumns(tuple(keys), types, ("",) * len(keys)))
    positions = iter(keyed.rows.column("position").to_pylist())
    return [
        (key, key_group, [next(positions) for _ in range(count)])
        for key, key_group, count in zip(keyed.keys, keyed.key_groups, keyed.counts, strict=True)
    ]


@pytest.mark.parametrize(
    ("values", "value_type"),
    [
        (["b", "a", None, "b", None], pa.string()),
        ([2, 1, None, 2, None], pa.int32()),
        ([2.5, -1.0, None, 2.5, None], pa.float64()),
        ([b"b", b"", None, b"b", None], pa.binary()),
        ([True, False, None, True, None], pa.bool_()),
        ([MOMENT, MOMENT.replace(year=1969), None, MOMENT, None], UTC),
    ],
)
def test_rows_of_a_key_come_together_in_their_order(
    values: list[Any], value_type: pa.DataType
) -> None:
    rows = grouped({"k": pa.array(values, value_type)}, ["k"])
    assert sorted(positions for _, _, positions in rows) == [[0, 3], [1], [2, 4]]
    for (value,), key_group, positions in rows:
        assert value == values[positions[0]]
        assert key_group == positions[0]


@pytest.mark.parametrize("value_type", [pa.string(), pa.large_string()])
@pytest.mark.parametrize(("distinct", "times"), [(3, 1), (5, 40), (70_000, 2)])
@pytest.mark.long
def test_text_is_in_the_order_of_its_bytes_however_often_it_comes(
    value_type: pa.DataType, distinct: int, times: int
) -> None:
    texts = [
        f"é{number % 7} {number}" if number % 3 else f"z{number}" for number in range(distinct)
    ]
    chance = random.Random(distinct)
    values = chance.sample(texts * times, distinct * times)
    half = len(values) // 2
    chunks = pa.chunked_array([values[:half], [], values[half:]], value_type)
    rows = grouped({"k": chunks}, ["k"])
    assert [key for (key,), _, _ in rows] == sorted(texts, key=str.encode)
    assert all(values[place] == key for (key,), _, places in rows for place in places)
    assert all(places == sorted(places) for _, _, places in rows)


def test_every_nan_is_one_key_and_minus_zero_is_zero() -> None:
    values = [math.nan, 0.0, float("nan"), -0.0]
    rows = grouped({"k": pa.array(values)}, ["k"])
    assert sorted(positions for _, _, positions in rows) == [[0, 2], [1, 3]]
    nan_key = next(key for key, _, positions in rows if positions == [0, 2])
    assert nan_key == (math.nan,)
    assert nan_key[0] is math.nan


ARRAYS: list[tuple[list[Any], pa.DataType]] = [
    ([None, [], [None], [None, 2], [1], [1, None], [1, 2], [2]], pa.int64()),
    ([[], [None], [-math.inf], [0.0], [0.0, 1.0], [math.inf], [math.nan]], pa.float64()),
    ([[""], ["a"], ["a", ""], ["ab"], ["\uffff"], ["\U00010000"]], pa.string()),
    ([[None], [[]], [[None]], [[1]], [[1], [1]], [[2]]], pa.list_(pa.int32())),
    (
        [[None], [{"a": None, "b": "x"}], [{"a": 1, "b": None}], [{"a": 1, "b": "x"}]],
        pa.struct([("a", pa.int32()), ("b", pa.string())]),
    ),
]


@pytest.mark.parametrize(("in_order", "element_type"), ARRAYS)
def test_arrays_are_in_the_order_of_spark_and_come_together(
    in_order: list[Any], element_type: pa.DataType
) -> None:
    values = [*in_order[1::2], *in_order[::2], *reversed(in_order)]
    column = pa.array(values, pa.list_(element_type))
    rows = grouped({"k": column, "s": pa.StructArray.from_arrays([column], ["a"])}, ["k", "s"])
    assert [repr(column[positions[0]].as_py()) for _, _, positions in rows] == [
        *map(repr, in_order)
    ]
    assert all(len(positions) == 2 for _, _, positions in rows)
    columns = KeyColumns(("k",), (column.type,), ("",))
    keys = columns.to_keys([column], len(column))
    assert len(set(keys)) == len(in_order)
    (back,) = columns.to_arrow(keys)
    assert back.equals(column) or "nan" in repr(values)
    assert columns.all_shown(keys) == [(value,) for value in column.to_pylist()] or (
        "nan" in repr(values)
    )


def test_arrays_with_zeros_and_nans_of_any_bits_are_one_key() -> None:
    values = pa.array([[0.0, math.nan], [-0.0, float("nan")], [0.0], [-0.0]])
    rows = grouped({"k": values}, ["k"])
    assert [positions for _, _, positions in rows] == [[2, 3], [0, 1]]


def test_an_empty_input_has_no_keys() -> None:
    keyed = group_by_key(pa.table({}), InputLayout(("k",), (0,)), KeyColumns((), (), ()))
    assert (keyed.keys, keyed.counts) == ([], [])


def test_a_grouping_without_columns_is_one_key() -> None:
    rows = grouped({"v": pa.array([5, 6])}, [])
    assert rows == [((), 0, [0, 1])]


@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 3), st.booleans()), max_size=40
    )
)
def test_several_key_columns_group_as_a_dictionary_of_tuples_does(
    rows: list[tuple[str | None, int, bool]],
) -> None:
    if not rows:
        return
    names, numbers, flags = zip(*rows, strict=True)
    columns = {
        "n": pa.array(names, pa.string()),
        "i": pa.array(numbers, pa.int8()),
        "f": pa.array(flags),
    }
    expected: dict[tuple[Any, ...], list[int]] = {}
    for position, row in enumerate(rows):
        expected.setdefault(row, []).append(position)
    groups = grouped(columns, ["n", "i", "f"])
    assert {key: positions for key, _, positions in groups} == expected
    assert [key for key, _, _ in groups] == sorted(
        expected, key=lambda key: (key[0] is not None, key[0] or "", *key[1:])
    )


@pytest.mark.parametrize(
    ("values", "value_type", "in_order"),
    [
        (["b", "é", "a", None, "Z", ""], pa.string(), [None, "", "Z", "a", "b", "é"]),
        ([2, -3, 1], pa.int64(), [-3, 1, 2]),
        ([2, None, -3, 1], pa.int16(), [None, -3, 1, 2]),
        (
            [math.inf, math.nan, None, -1.0, 0.0],
            pa.float64(),
            [None, -1.0, 0.0, math.inf, math.nan],
        ),
        ([math.nan, 1.0, -math.inf], pa.float32(), [-math.inf, 1.0, math.nan]),
        ([b"\xff", b"a", b"a\x00"], pa.binary(), [b"a", b"a\x00", b"\xff"]),
        ([True, None, False], pa.bool_(), [None, False, True]),
        ([MOMENT, MOMENT.replace(year=1969)], UTC, [MOMENT.replace(year=1969), MOMENT]),
        ([Decimal("1.50"), Decimal("-2")], pa.decimal128(10, 2), [Decimal("-2"), Decimal("1.5")]),
    ],
)
def test_keys_come_in_the_order_of_spark(
    values: list[Any], value_type: pa.DataType, in_order: list[Any]
) -> None:
    rows = grouped({"k": pa.array(values, value_type)}, ["k"])
    assert [repr(key) for (key,), _, _ in rows] == [
        repr(value) for value in pa.array(in_order, value_type).to_pylist()
    ]


def test_null_keys_of_several_batches_are_one_key() -> None:
    batches = [
        pa.table({"k": pa.array([None, "a"]), "g": pa.array([0, 1])}),
        pa.table({"k": pa.array(["b", None]), "g": pa.array([2, 0])}),
    ]
    layout, columns = InputLayout(("k",), (0,)), KeyColumns(("k",), (pa.string(),), ("string",))
    keyed = group_by_key(pa.concat_tables(batches), layout, columns)
    assert (keyed.keys, keyed.counts) == ([(None,), ("a",), ("b",)], [2, 1, 1])
