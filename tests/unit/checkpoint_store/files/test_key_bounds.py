"""A read of key ranges leaves out only files without a key in the ranges."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_store.files.key_bounds import KeyBounds, ValueRange, bound_of, key_bounds, may_hold

DAY = datetime.date(2026, 1, 2)
DAYS = 20455


def test_bounds_are_those_of_integers_dates_and_text() -> None:
    rows = pa.table(
        {
            "id": pa.array([3, None, -7], pa.int32()),
            "day": pa.array([DAY, None, DAY + datetime.timedelta(1)]),
            "text": ["b", "a", "ß"],
            "real": [1.5, 2.5, None],
            "moment": pa.array([0, 1, 2], pa.timestamp("us", "UTC")),
            "flag": [True, False, None],
            "nothing": pa.nulls(3, pa.int64()),
            "long": ["a" * 257, "b", "c"],
        }
    )
    assert key_bounds(rows, rows.column_names) == (
        KeyBounds("id", -7, 3),
        KeyBounds("day", DAYS, DAYS + 1),
        KeyBounds("text", "a", "ß"),
    )


def test_dates_that_python_has_not_and_text_that_is_not_utf8_can_be_written() -> None:
    far: Any = pa.array([10_000_000, -10_000_000], pa.int32()).cast(pa.date32())
    raw: Any = pa.array([b"\xff\xfe", b"a"], pa.binary())
    text = pa.StringArray.from_buffers(2, raw.buffers()[1], raw.buffers()[2])
    assert key_bounds(pa.table({"day": far, "text": text}), ["day", "text"]) == (
        KeyBounds("day", -10_000_000, 10_000_000),
    )


@pytest.mark.parametrize(
    ("value", "bound"),
    [(7, 7), ("x", "x"), (DAY, DAYS), (True, None), (1.5, None), (None, None), (Decimal(1), None)],
)
def test_a_value_is_compared_as_bounds_are(value: object, bound: object) -> None:
    assert bound_of(value) == bound
    assert bound_of(datetime.datetime(2026, 1, 2)) is None


def test_columns_without_bounds_and_values_of_other_types_leave_nothing_out() -> None:
    bounds = [KeyBounds("id", 1, 5)]
    assert may_hold(bounds, {"other": ValueRange(9, 9)})
    assert may_hold(bounds, {"id": ValueRange("9", None)})
    assert may_hold((), {"id": ValueRange(9, 9)})
    assert not may_hold(bounds, {"id": ValueRange(9, 9)})


numbers = st.integers(-20, 20)
ends = st.none() | numbers


@given(st.lists(st.tuples(numbers, numbers), min_size=1), ends, ends, ends, ends)
def test_no_file_with_a_key_in_the_ranges_is_left_out(
    keys: list[tuple[int, int]], a: int | None, b: int | None, c: int | None, d: int | None
) -> None:
    rows = pa.table({"x": [x for x, _ in keys], "y": [y for _, y in keys]})
    wanted = {"x": ValueRange(a, b), "y": ValueRange(c, d).intersection(ValueRange(-15, 15))}

    def inside(value: int, least: int | None, greatest: int | None) -> bool:
        return (least is None or least <= value) and (greatest is None or value <= greatest)

    possible = may_hold(key_bounds(rows, ["x", "y"]), wanted)
    asked = [
        key for key in keys if inside(key[0], a, b) and inside(key[1], c, d) and abs(key[1]) <= 15
    ]
    assert possible or not asked
    if len(keys) == 1:
        assert possible == bool(asked)


@given(st.lists(st.text(max_size=3), min_size=1), st.text(max_size=3))
def test_text_compares_as_its_bytes(texts: list[str], least: str) -> None:
    bounds = key_bounds(pa.table({"t": texts}), ["t"])
    expected = any(text.encode() >= least.encode() for text in texts)
    assert may_hold(bounds, {"t": ValueRange(least)}) == expected
