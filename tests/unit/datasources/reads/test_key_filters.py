"""Filters on key columns leave the right values and key groups to read."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from checkpoint_store.files.key_bounds import ValueRange
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateFileKind, StateHandle
from datasources.reads.key_filters import AskedValues, key_groups_asked_for
from datasources.reads.key_group_partitions import key_group_ranges, partition_count, ranges_to_read
from spark_state.key_group_hash import KeyGroupAssignment
from tests.support.tables.table_rows_of import schema_json

MAX = 16


def groups_of(types: list[str], *keys: tuple[Any, ...]) -> list[int]:
    assignment = KeyGroupAssignment(types, MAX)
    return sorted({assignment.key_group(key) for key in keys})


ID, DAY, NAME, NESTED = ("id",), ("day",), ("name",), ("id", "part")
EPOCH_DAY = datetime.date(1970, 1, 1)
NEW_YEAR = datetime.date(1970, 1, 2)


def asked_by(*filters: Filter) -> AskedValues:
    asked = AskedValues()
    for pushed in filters:
        asked.add(pushed)
    return asked


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([GreaterThan(ID, 3), LessThanOrEqual(ID, 9)], ValueRange(3, 9)),
        ([GreaterThanOrEqual(ID, 3), GreaterThan(ID, 5)], ValueRange(5, None)),
        ([LessThan(ID, "m"), IsNotNull(ID)], ValueRange(None, "m")),
        ([EqualTo(ID, 7)], ValueRange(7, 7)),
        ([In(ID, (5, 1, 9)), LessThan(ID, 6)], ValueRange(1, 6)),
        ([EqualNullSafe(ID, None)], ValueRange()),
        ([In(ID, (5, None))], ValueRange()),
        ([In(ID, (5, "x"))], ValueRange()),
        ([GreaterThan(ID, 3), LessThan(ID, "x")], ValueRange(3, "x")),
        ([GreaterThan(ID, 3), GreaterThan(ID, "x")], ValueRange()),
        ([GreaterThan(ID, 1.5)], ValueRange()),
    ],
)
def test_filters_leave_a_range_of_values(filters: list[Filter], left: ValueRange) -> None:
    assert asked_by(*filters).ranges["id"] == left


def test_dates_are_compared_as_days_and_other_filters_say_nothing() -> None:
    asked = asked_by(GreaterThan(DAY, NEW_YEAR), EqualTo(NESTED, 3), Not(EqualTo(ID, 3)))
    assert asked.ranges == {"day": ValueRange(0, None)}
    assert asked.values == {}


@pytest.mark.parametrize(
    ("day", "originals"),
    [
        (datetime.date(2011, 12, 31), [datetime.date(2011, 12, 30), datetime.date(2011, 12, 31)]),
        (datetime.date(1582, 10, 15), [datetime.date(1582, 10, day) for day in range(5, 16)]),
        (datetime.date.min, [datetime.date.min]),
    ],
)
def test_a_day_stands_for_the_days_that_spark_moves_to_it(
    day: datetime.date, originals: list[datetime.date]
) -> None:
    first, last = ((original - EPOCH_DAY).days for original in (originals[0], originals[-1]))
    for condition, left in (
        (EqualTo(DAY, day), ValueRange(first, last)),
        (GreaterThan(DAY, day), ValueRange(first, None)),
        (LessThanOrEqual(DAY, day), ValueRange(None, last)),
    ):
        assert asked_by(condition).ranges["day"] == left
    assert asked_by(In(DAY, (day,))).values["day"] == tuple(originals)


@pytest.mark.parametrize("literal", [Decimal(10**27), Decimal("-1." + "3" * 27), "caf\ufffd"])
def test_a_literal_that_may_have_changed_says_nothing(literal: Any) -> None:
    for condition in (EqualTo(ID, literal), In(ID, (literal, None)), LessThan(ID, literal)):
        assert asked_by(condition) == AskedValues()


def test_a_decimal_that_nothing_rounds_is_a_value() -> None:
    assert asked_by(EqualTo(ID, Decimal("9" * 27))).values == {"id": (Decimal("9" * 27),)}


def test_nan_in_two_filters_is_one_value() -> None:
    asked = asked_by(In(ID, (float("nan"), 1.0)), In(ID, (2.0, float("nan"))))
    assert [math.isnan(value) for value in asked.values["id"]] == [True]


def test_values_must_be_in_all_filters_of_a_column() -> None:
    asked = asked_by(In(ID, (1, 2, 3)), In(ID, (2, 3, 4)), EqualTo(NAME, "Ulm"))
    assert asked.values == {"id": (2, 3), "name": ("Ulm",)}


def test_values_of_all_key_columns_leave_the_key_groups_of_their_combinations() -> None:
    asked = {"id": (1, 2), "city": ("Ulm",), "amount": (3,)}
    groups = key_groups_asked_for(asked, schema_json(id="long", city="string"), MAX)
    assert groups == groups_of(["long", "string"], (1, "Ulm"), (2, "Ulm"))


def test_no_value_at_all_leaves_no_key_group() -> None:
    assert key_groups_asked_for({"id": ()}, schema_json(id="long"), MAX) == []


@pytest.mark.parametrize(
    "asked", [{}, {"id": (1,)}, {"city": ("Ulm",)}, {"id": (1,), "other": ("x",)}]
)
def test_a_key_column_without_values_leaves_all(asked: dict[str, tuple[Any, ...]]) -> None:
    assert key_groups_asked_for(asked, schema_json(id="long", city="string"), MAX) is None


def test_a_state_without_key_has_nothing_to_leave_out() -> None:
    assert key_groups_asked_for({}, schema_json(), MAX) is None


def test_more_keys_than_it_is_worth_leave_all() -> None:
    asked = {"id": tuple(range(40)), "city": tuple("abcdefghijklmnopqrstuvwxyz")}
    assert key_groups_asked_for(asked, schema_json(id="long", city="string"), MAX) is None


@pytest.mark.parametrize(
    ("type_name", "value"),
    [
        ("integer", 7),
        ("double", -0.0),
        ("date", datetime.date(2026, 1, 31)),
        ("decimal(10,2)", Decimal("1.5")),
        ("timestamp_ntz", datetime.datetime(2026, 1, 31, 12)),
        ("string", None),
    ],
)
def test_values_hash_as_the_rows_do(type_name: str, value: Any) -> None:
    groups = key_groups_asked_for({"k": (value,)}, schema_json(k=type_name), MAX)
    assert groups == groups_of([type_name], (value,))


@pytest.mark.parametrize(
    ("type_name", "value"),
    [("timestamp", datetime.datetime(2026, 1, 31)), ("long", "7"), ("long", 2**70)],
)
def test_a_value_whose_hash_is_not_certain_leaves_all(type_name: str, value: Any) -> None:
    assert key_groups_asked_for({"k": (value,)}, schema_json(k=type_name), MAX) is None


@pytest.mark.parametrize(("most", "count"), [(16, 1), (16, 5), (16, 16), (16, 99), (1, 3), (7, 2)])
def test_ranges_cover_every_key_group_once(most: int, count: int) -> None:
    ranges = key_group_ranges(most, count)
    covered = [group for part in ranges for group in range(part.start, part.end + 1)]
    assert covered == list(range(most))
    assert len(ranges) == min(most, count)


def file_of(kind: StateFileKind, start: int, end: int, megabytes: int = 1) -> StateHandle:
    name = f"{kind} {start}"
    return StateHandle(kind, name, megabytes << 20, "00", KeyGroupRange(start, end), 0, 1)


def test_a_database_is_read_in_one_range() -> None:
    files = [
        file_of("database", 0, 4, 1000),
        file_of("database", 5, 9),
        file_of("changelog", 0, 15, 100),
    ]
    ranges = [(held.start, held.end) for held in ranges_to_read(files, 16, None)]
    assert ranges[:2] == [(0, 4), (5, 9)]
    assert [group for start, end in ranges for group in range(start, end + 1)] == [*range(16)]
    overlapping = [file_of("database", 0, 7), file_of("database", 4, 9)]
    assert ranges_to_read(overlapping, 16, None)[0] == KeyGroupRange(0, 9)
    assert len(ranges_to_read(files, 16, 3)) == 3, "the caller's number counts"


def test_other_files_are_read_in_ranges_of_like_size() -> None:
    files = [file_of("snapshot", 0, 15, 64)]
    assert ranges_to_read(files, 16, None) == key_group_ranges(16, partition_count(64 << 20))


def test_larger_files_are_read_in_more_partitions_up_to_a_bound() -> None:
    assert [partition_count(size << 20) for size in (0, 15, 16, 160, 1 << 20)] == [1, 1, 2, 11, 256]
