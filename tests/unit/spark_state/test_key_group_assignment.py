"""The key hash equals golden values of Spark's xxhash64, and unsupported values are refused."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_state.errors import KeyGroupError
from spark_state.key_group_assignment import KeyType, is_hashable_type
from spark_state.key_group_hash import KeyGroupAssignment, arrow_type_of, hashes_of

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


def hash_of(key_types: Sequence[KeyType], *key: Any) -> int:
    """The hash of a key as Spark has it, with a sign."""
    columns = [
        pa.array([value], arrow_type_of(key_type))
        for value, key_type in zip(key, key_types, strict=True)
    ]
    return int(hashes_of(columns, key_types, 1).astype(np.int64)[0])


@pytest.mark.parametrize(("type_name", "value", "expected"), GOLDEN)
def test_the_hash_of_a_column_equals_the_golden_value(
    type_name: str, value: Any, expected: int
) -> None:
    assert hash_of([type_name], value) == expected


def test_columns_are_chained_and_nulls_leave_the_hash_as_it_is() -> None:
    types = ["string", "integer", "string", "double"]
    assert hash_of(types, "N14228", 42, None, 1.5) == -1174195684806444144


def test_a_key_without_columns_has_the_seed_as_hash() -> None:
    assert KeyGroupAssignment([], 128).key_group(()) == 42


def test_a_null_in_an_array_and_an_empty_array_leave_the_hash_as_it_is() -> None:
    array = {"type": "array", "elementType": "integer", "containsNull": True}
    assert hash_of([array], []) == 42
    assert hash_of([array], [42, None]) == hash_of([array], [42]) == -387659249110444264
    assert hash_of([array], [1, 2]) == hash_of(["integer", "integer"], 1, 2)


def test_an_interval_hashes_by_its_microseconds() -> None:
    for name in ("interval day to second", "interval hour", "interval minute to second"):
        for micros in (0, -1, 3_600_000_000, -(1 << 56)):
            interval = datetime.timedelta(0, 0, micros)
            assert hash_of([name], interval) == hash_of(["long"], micros)


def test_an_aware_timestamp_hashes_by_its_instant() -> None:
    moment = MOMENT.replace(tzinfo=NEW_YORK)
    in_utc = moment.astimezone(datetime.UTC)
    assert hash_of(["timestamp"], moment) == hash_of(["timestamp"], in_utc)


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
    for key_type, value in (("integer", "a"), ("integer", 1.0), ("string", b"a"), ("date", MOMENT)):
        with pytest.raises(KeyGroupError, match=r"key \(.*,\): .* cannot be hashed"):
            KeyGroupAssignment([key_type], 128).key_group((value,))


def test_a_struct_is_hashed_as_its_fields_are_as_columns() -> None:
    struct = {
        "type": "struct",
        "fields": [{"name": "n", "type": "integer"}, {"name": "text", "type": "string"}],
    }
    of_columns = ["integer", "string"]
    for n, text in ((1, "x"), (None, "x"), (2, None)):
        assert hash_of([struct], {"n": n, "text": text}) == hash_of(of_columns, n, text)
    assert hash_of([struct], None) == 42
