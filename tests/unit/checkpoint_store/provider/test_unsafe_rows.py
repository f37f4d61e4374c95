"""Handwritten UnsafeRow bytes decode to the right values, and damaged bytes are an error."""

from __future__ import annotations

import json
import struct
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_store.files.spark_schema import (
    StructType,
    UnsupportedSparkTypeError,
    parse_spark_schema,
)
from checkpoint_store.provider.unsafe_rows import MalformedRowError, decode_rows


def array_of(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def map_of(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


LONGS, TEXTS = (array_of(element) for element in ("long", "string"))
MAP = map_of("long", "string")
UDT: dict[str, Any] = {"type": "udt", "class": "a.B", "pyClass": None, "sqlType": LONGS}


def fields(*types: Any) -> list[dict[str, Any]]:
    return [
        {"name": f"f{place}", "type": spark_type, "nullable": True, "metadata": {}}
        for place, spark_type in enumerate(types)
    ]


def struct_of(*types: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": fields(*types)}


def schema(*types: Any) -> StructType:
    return parse_spark_schema(json.dumps(struct_of(*types)))


def words(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}q", *numbers)


def pointer(offset: int, size: int) -> int:
    return offset << 32 | size


def row_of(slot: int, variable: bytes = b"") -> bytes:
    """Make a row with one field that is not null."""
    return words(0, slot) + variable


def decode(rows: list[bytes | None], *types: Any) -> pa.StructArray:
    decoded = decode_rows(pa.array(rows, pa.binary()), schema(*types), "value")
    decoded.validate(full=True)
    return decoded


def value_of(row: bytes, spark_type: Any) -> Any:
    """Return the only field's value, decoded between a row with a null and a missing row."""
    values = decode([words(1, 0), row, None], spark_type).to_pylist()
    assert (values[0], values[2]) == ({"f0": None}, None)
    return values[1]["f0"]


KEYS = words(2, 0, 5, 6)
VALUES = words(2, 0b10, pointer(32, 1), 0) + b"x".ljust(8, b"\0")
# tests/property/provider/test_unsafe_rows.py has all other types, in rows that Spark writes.
CASES: list[tuple[Any, bytes, Any]] = [
    ("long", row_of(-2), -2),
    ("string", row_of(pointer(16, 5), "añxy".encode().ljust(8, b"\0")), "añxy"),
    ("char(3)", row_of(pointer(16, 3), b"abc".ljust(8, b"\0")), "abc"),
    ("interval hour", row_of(3_600_000_000), timedelta(hours=1)),
    ("interval month", row_of(2), pa.MonthDayNano([2, 0, 0])),
    (UDT, row_of(pointer(16, 24), words(1, 0, 9)), [9]),
    (
        MAP,
        row_of(pointer(16, 8 + len(KEYS + VALUES)), words(len(KEYS)) + KEYS + VALUES),
        [(5, "x"), (6, None)],
    ),
]


@pytest.mark.parametrize(
    ("spark_type", "row", "expected"), CASES, ids=[str(case[0]) for case in CASES]
)
def test_a_value_is_what_its_bytes_say(spark_type: Any, row: bytes, expected: object) -> None:
    assert value_of(row, spark_type) == expected


def test_no_rows_have_the_type_of_the_schema() -> None:
    assert decode([], "long", MAP).type == schema("long", MAP).arrow


def test_a_slice_of_rows_is_decoded_as_that() -> None:
    rows = pa.array([row_of(number) for number in range(9)], pa.binary()).slice(3, 4)
    decoded = decode_rows(rows, schema("long"), "key")
    assert decoded.to_pylist() == [{"f0": number} for number in range(3, 7)]


BIG = 1 << 31
DAMAGED: list[tuple[Any, bytes, str]] = [
    ("long", b"\0" * 12, "value has a row of no whole number of words"),
    ("long", words(0), "value has a row that is too short"),
    ("string", row_of(pointer(16, 9), b"x" * 8), "value.f0 has an offset or a size"),
    ("string", row_of(pointer(8, 8), b"x" * 8), "value.f0 has an offset or a size"),
    ("string", row_of(pointer(-16, 8), b"x" * 8), "value.f0 has an offset or a size"),
    ("string", row_of(pointer(16, 1), b"\xff".ljust(8, b"\0")), "value.f0 has a string that is"),
    ("decimal(5,2)", row_of(100_000), "value.f0 has a decimal of more than 5 digits"),
    ("decimal(20,0)", row_of(pointer(16, 16), b"\x7f" * 16), "a decimal of more than 20 digits"),
    ("decimal(20,0)", row_of(pointer(16, 0), bytes(16)), "a decimal of a wrong size"),
    ("decimal(20,0)", row_of(pointer(16, 24), bytes(24)), "a decimal of a wrong size"),
    ("time(0)", row_of(86_400 * 10**9), "a time that is not of a day"),
    ("interval", row_of(pointer(16, 8), bytes(8)), "an interval of a wrong size"),
    ("interval", row_of(pointer(16, 16), words(0, 1 << 60)), "nanoseconds do not fit"),
    ("variant", row_of(pointer(16, 3), bytes(8)), "a variant that is too short"),
    ("variant", row_of(pointer(16, 8), words(5)), "a value that leads out of its variant"),
    ("variant", row_of(pointer(17, 7), words(0)), "a variant at an odd place"),
    (struct_of("long"), row_of(pointer(16, 8), bytes(8)), "value.f0 has a row that is too short"),
    (struct_of("long"), row_of(pointer(20, 16), bytes(24)), "no whole number of words"),
    (LONGS, row_of(pointer(16, 0)), "value.f0.element has an array that is too short"),
    (LONGS, row_of(pointer(16, 24), words(2, 0, 0)), "an array that is too short"),
    (LONGS, row_of(pointer(16, 24), words(-1, 0, 0)), "an array of a wrong number of elements"),
    (LONGS, row_of(pointer(16, 24), words(BIG << 29, 0, 0)), "an array of a wrong number"),
    (
        TEXTS,
        row_of(pointer(16, 24), words(1, 0, pointer(24, 1))),
        "element has an offset or a size",
    ),
    (
        TEXTS,
        row_of(pointer(16, 24), words(1, 0, pointer(16, 8))),
        "element has an offset or a size",
    ),
    (MAP, row_of(pointer(16, 0)), "value.f0 has a map that is too short"),
    (MAP, row_of(pointer(16, 24), words(24, 0, 0)), "keys that lead out of the map"),
    (MAP, row_of(pointer(16, 24), words(-8, 0, 0)), "keys that lead out of the map"),
    (MAP, row_of(pointer(16, 40), words(24, 1, 0, 5, 0)), "more keys than values"),
    (MAP, row_of(pointer(16, 56), words(24, 1, 1, 5, 1, 1, 0)), "a map with a null key"),
]


@pytest.mark.parametrize(
    ("spark_type", "row", "problem"), DAMAGED, ids=[case[2] for case in DAMAGED]
)
def test_bytes_that_are_no_row_are_an_error_that_names_the_column(
    spark_type: Any, row: bytes, problem: str
) -> None:
    with pytest.raises(MalformedRowError, match=problem):
        decode([row], spark_type)


def test_values_that_overlap_do_not_grow_beyond_the_bytes_there_are() -> None:
    count = 50
    variable = bytes(8) + b"x" * 800
    row = words(count, 0, *[pointer(16 + 8 * count, len(variable))] * count) + variable
    with pytest.raises(MalformedRowError, match="values that overlap"):
        decode([row_of(pointer(16, len(row)), row)], TEXTS)


@pytest.mark.parametrize(
    ("spark_type", "path"),
    [
        ("geometry(4326)", "f0 has type geometry"),
        ("decimal(39,0)", "f0 has type decimal"),
        (struct_of("long", array_of("new")), "f0.f1.element has type new"),
        (map_of("new", "string"), "f0.key has type new"),
        ({"type": "tree"}, "f0 has type tree"),
    ],
)
def test_a_type_that_is_not_known_is_named_with_its_column(spark_type: Any, path: str) -> None:
    with pytest.raises(UnsupportedSparkTypeError, match=path):
        schema(spark_type)


def test_a_layout_has_no_names() -> None:
    named = json.dumps(struct_of(struct_of("long"), MAP))
    renamed = parse_spark_schema(named.replace('"f0"', '"other"'))
    assert renamed.layout == schema(struct_of("long"), MAP).layout
    assert renamed.layout != schema(struct_of("integer"), MAP).layout
