"""The key hash equals golden values of Spark's xxhash64, and unsupported values are refused."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pytest

from spark_state.errors import KeyGroupError
from spark_state.key_group_assignment import KeyGroupAssignment, is_hashable_type

NEW_YORK = datetime.timezone(datetime.timedelta(hours=-5))
MOMENT = datetime.datetime(2013, 1, 1, 5, 17, 0, 123456)

GOLDEN: list[tuple[str, Any, int]] = [
    ("boolean", True, -6698625589789238999),
    ("byte", -3, 1399955818750051488),
    ("short", 1234, 6689958172529171031),
    ("integer", 42, -387659249110444264),
    ("date", datetime.date(2013, 1, 1), 1349268229983960169),
    ("long", -(1 << 63), -8619748838626508300),
    ("timestamp", MOMENT.replace(tzinfo=datetime.UTC), 6018529094554468181),
    ("timestamp_ntz", MOMENT, 6018529094554468181),
    ("float", 1.5, 6163473420726370430),
    ("float", -0.0, 3614696996920510707),
    ("float", math.nan, 2692338816207849720),
    ("double", 2.5, 2435211733827758672),
    ("double", -0.0, -5252525462095825812),
    ("double", math.nan, -3127944061524951246),
    ("string", "N14228", 2818031054348419725),
    ("string", "", -7444071767201028348),
    ("string", "Zürich", -2199928141300491114),
    ("string", "x" * 100, 365730103971579591),
    ("binary", b"\x00\xff\x10", 5415089035989094387),
    ("decimal(10,2)", Decimal("-12.34"), -1614697014534150208),
    ("decimal(38,4)", Decimal("-12345678901234567890.1234"), -370987751018734859),
    ("decimal(38,4)", Decimal(128), -565967967050166557),
    ("decimal(20,0)", Decimal(-128), -7898411661632158123),
    ("string", None, 42),
]


def signed(unsigned: int) -> int:
    return unsigned - (1 << 64) if unsigned >> 63 else unsigned


@pytest.mark.parametrize(("type_name", "value", "expected"), GOLDEN)
def test_the_hash_of_a_column_equals_the_golden_value(
    type_name: str, value: Any, expected: int
) -> None:
    assert signed(KeyGroupAssignment([type_name], 128).hash((value,))) == expected


def test_columns_are_chained_and_nulls_leave_the_hash_as_it_is() -> None:
    assignment = KeyGroupAssignment(["string", "integer", "string", "double"], 128)
    assert signed(assignment.hash(("N14228", 42, None, 1.5))) == -1174195684806444144


def test_a_key_without_columns_has_the_seed_as_hash() -> None:
    assert KeyGroupAssignment([], 128).key_group(()) == 42


def test_a_null_in_an_array_and_an_empty_array_leave_the_hash_as_it_is() -> None:
    array = {"type": "array", "elementType": "integer", "containsNull": True}
    assignment = KeyGroupAssignment([array], 128)
    assert assignment.hash(([],)) == 42
    assert assignment.hash(([42, None],)) == assignment.hash(([42],))
    assert signed(assignment.hash(((42,),))) == -387659249110444264
    chained = KeyGroupAssignment(["integer", "integer"], 128)
    assert assignment.hash(([1, 2],)) == chained.hash((1, 2))


def test_an_interval_hashes_by_its_microseconds() -> None:
    long = KeyGroupAssignment(["long"], 128)
    for name in ("interval day to second", "interval hour", "interval minute to second"):
        interval = KeyGroupAssignment([name], 128)
        for micros in (0, -1, 3_600_000_000, -(1 << 56)):
            assert interval.hash((datetime.timedelta(0, 0, micros),)) == long.hash((micros,))


def test_an_aware_timestamp_hashes_by_its_instant() -> None:
    assignment = KeyGroupAssignment(["timestamp"], 128)
    moment = MOMENT.replace(tzinfo=NEW_YORK)
    assert assignment.hash((moment,)) == assignment.hash((moment.astimezone(datetime.UTC),))


def test_key_groups_of_negative_hashes_are_in_range() -> None:
    assignment = KeyGroupAssignment(["integer"], 100)
    groups = {assignment.key_group((number,)) for number in range(5000)}
    assert groups == set(range(100))
    assert assignment.key_group((42,)) == -387659249110444264 % 100


@pytest.mark.parametrize(
    "type_name",
    [
        "map<string,int>",
        "{'type': 'array'}",
        "variant",
        "interval year to month",
        "interval",
        "void",
    ],
)
def test_a_type_without_a_stable_hash_is_refused_by_name(type_name: str) -> None:
    assert not is_hashable_type(type_name)
    with pytest.raises(KeyGroupError, match="no key group; group by columns of type boolean"):
        KeyGroupAssignment([type_name], 128)


def test_a_value_of_another_type_is_refused_with_the_key() -> None:
    with pytest.raises(KeyGroupError, match=r"key \('a',\): 'a' cannot be hashed"):
        KeyGroupAssignment(["integer"], 128).key_group(("a",))


def test_a_struct_is_hashed_as_its_fields_are_as_columns() -> None:
    struct = {
        "type": "struct",
        "fields": [{"name": "n", "type": "integer"}, {"name": "text", "type": "string"}],
    }
    of_columns = KeyGroupAssignment(["integer", "string"], 128)
    of_struct = KeyGroupAssignment([struct], 128)
    for n, text in ((1, "x"), (None, "x"), (2, None)):
        assert of_struct.hash(({"n": n, "text": text},)) == of_columns.hash((n, text))
    assert of_struct.hash((None,)) == of_columns.hash((None, None))
