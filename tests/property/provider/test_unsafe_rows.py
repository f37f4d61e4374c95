"""Decoding returns the original rows of random schemas that Spark's UnsafeProjection wrote."""

from __future__ import annotations

import json
import pickle
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from checkpoint_store.files.spark_schema import parse_spark_schema
from checkpoint_store.provider.crc32c import crc32c_of_rows
from checkpoint_store.provider.unsafe_rows import MalformedRowError, decode_rows
from tests.support.examples import examples
from tests.support.provider.provider_jobs import configured
from tests.support.provider.provider_jvm import ProviderJvm, crc32c

pytestmark = pytest.mark.spark

MICROS_OF_A_DAY = 86_400 * 10**6
# The range of Python's dates.
FIRST_DAY, LAST_DAY = -719_162, 2_932_896


@dataclass(frozen=True)
class Shape:
    """A type in Spark's JSON, with values in Spark's pickled form and in Arrow's form."""

    described: Any
    values: st.SearchStrategy[tuple[Any, Any]]


def same(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    return values.map(lambda value: (value, value))


def whole(bits: int) -> st.SearchStrategy[tuple[Any, Any]]:
    return same(st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1))


def decimals(precision: int, scale: int) -> Shape:
    limit = 10**precision - 1
    # Decimal's own arithmetic rounds to 28 digits; text stays exact.
    numbers = st.integers(-limit, limit).map(lambda number: Decimal(f"{number}E-{scale}"))
    return Shape(f"decimal({precision},{scale})", same(numbers))


micros = same(st.integers(FIRST_DAY * MICROS_OF_A_DAY, LAST_DAY * MICROS_OF_A_DAY))
texts = same(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
atoms: st.SearchStrategy[Shape] = st.sampled_from(
    [
        Shape("boolean", same(st.booleans())),
        Shape("byte", whole(8)),
        Shape("short", whole(16)),
        Shape("integer", whole(32)),
        Shape("long", whole(64)),
        Shape("float", same(st.floats(width=32))),
        Shape("double", same(st.floats())),
        Shape("string", texts),
        Shape("varchar(20)", texts),
        Shape("binary", same(st.binary(max_size=20))),
        Shape("date", same(st.integers(FIRST_DAY, LAST_DAY))),
        Shape("timestamp", micros),
        Shape("timestamp_ntz", micros),
        Shape("interval day to second", same(st.integers(-(10**15), 10**15))),
        Shape("void", same(st.none())),
        *(decimals(precision, precision // 3) for precision in (1, 9, 18, 19, 25, 38)),
    ]
)


def nullable(shape: Shape) -> st.SearchStrategy[tuple[Any, Any]]:
    return st.just((None, None)) | shape.values


def arrays(element: Shape) -> Shape:
    values = st.lists(nullable(element), max_size=70)
    return Shape(
        {"type": "array", "elementType": element.described, "containsNull": True},
        values.map(lambda pairs: ([pair[0] for pair in pairs], [pair[1] for pair in pairs])),
    )


def maps(value: Shape) -> Shape:
    entries = st.dictionaries(st.integers(-9, 9), nullable(value), max_size=4)
    return Shape(
        {"type": "map", "keyType": "long", "valueType": value.described, "valueContainsNull": True},
        entries.map(
            lambda pairs: (
                {key: pair[0] for key, pair in pairs.items()},
                [(key, pair[1]) for key, pair in pairs.items()],
            )
        ),
    )


def structs(members: list[Shape]) -> Shape:
    fields = [
        {"name": f"f{place}", "type": shape.described, "nullable": True, "metadata": {}}
        for place, shape in enumerate(members)
    ]
    return Shape(
        {"type": "struct", "fields": fields},
        st.tuples(*map(nullable, members)).map(
            lambda pairs: (
                tuple(pair[0] for pair in pairs),
                {f"f{place}": pair[1] for place, pair in enumerate(pairs)},
            )
        ),
    )


shapes = st.recursive(
    atoms,
    lambda inner: (
        inner.map(arrays) | inner.map(maps) | st.lists(inner, min_size=1, max_size=4).map(structs)
    ),
    max_leaves=6,
)
schemas = st.one_of(
    st.lists(shapes, max_size=6).map(structs),
    st.lists(atoms, min_size=60, max_size=130).map(structs),
)
tables = schemas.flatmap(
    lambda schema: st.tuples(st.just(schema.described), st.lists(schema.values, max_size=4))
)
single_rows = schemas.flatmap(lambda schema: st.tuples(st.just(schema.described), schema.values))


def split(joined: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(joined):
        (length,) = struct.unpack_from(">i", joined, place)
        yield joined[place + 4 : place + 4 + length]
        place += 4 + length


def in_order(value: Any) -> Any:
    """A value with sorted map entries, because Java's maps have a different order."""
    match value:
        case dict():
            return {name: in_order(member) for name, member in value.items()}
        case list() if value and isinstance(value[0], tuple):
            return sorted((key, in_order(entry)) for key, entry in value)
        case list():
            return [in_order(element) for element in value]
        case _:
            return value


def shown(array: pa.Array) -> str:
    """The values as text, in which NaN equals NaN and -0.0 differs from 0.0."""
    return repr([in_order(value) for value in array.to_pylist()])


def test_rows_are_decoded_to_the_values_they_were_made_of(provider_jvm: ProviderJvm) -> None:
    spark = provider_jvm.new("UnsafeRowBytes")

    @examples(50)
    @given(tables)
    def agree(table: tuple[Any, list[tuple[Any, Any]]]) -> None:
        described, values = table
        pickled = pickle.dumps([of_spark for of_spark, _ in values], protocol=4)
        rows = [*split(bytes(spark.ofValues(json.dumps(described), pickled)))]
        schema = parse_spark_schema(json.dumps(described))
        decoded = decode_rows(pa.array(rows, pa.binary()), schema, "value")
        decoded.validate(full=True)
        expected = pa.array([of_arrow for _, of_arrow in values], schema.arrow)
        assert shown(decoded) == shown(expected)

    agree()


def test_types_that_only_queries_make_are_decoded(
    provider_jvm: ProviderJvm, spark: SparkSession
) -> None:
    with configured(spark, {"spark.sql.timeType.enabled": "true"}):
        query = spark.sql(
            "SELECT INTERVAL '-3' MONTH AS months, make_interval(1, 2, 0, 3, 4, 5, 6.5) AS mixed, "
            "TIME '01:02:03.000004' AS time, parse_json('{\"a\": [1, null]}') AS variant, "
            "array(INTERVAL '1-2' YEAR TO MONTH, NULL) AS intervals, "
            "'x' COLLATE UNICODE_CI AS text, "
            "array(TIME '00:00:01', NULL) AS times, array(make_interval(0, 0, 0, 1), NULL) AS mixes"
        )
        rows = [*split(bytes(provider_jvm.new("UnsafeRowBytes").ofQuery(query._jdf)))]
        schema = parse_spark_schema(query.schema.json())
        decoded = decode_rows(pa.array(rows, pa.binary()), schema, "value")
        decoded.validate(full=True)
        (values,) = decoded.to_pylist()
        variant = query.select("variant").first()
    assert variant is not None
    assert values["variant"] == {"value": variant[0].value, "metadata": variant[0].metadata}
    assert values["months"] == pa.MonthDayNano([-3, 0, 0])
    seconds = 4 * 3600 + 5 * 60 + 6
    assert values["mixed"] == pa.MonthDayNano([14, 3, seconds * 10**9 + 5 * 10**8])
    assert values["time"].isoformat() == "01:02:03.000004"
    assert values["intervals"] == [pa.MonthDayNano([14, 0, 0]), None]
    assert [time and time.isoformat() for time in values["times"]] == ["00:00:01", None]
    assert values["mixes"] == [pa.MonthDayNano([0, 1, 0]), None]
    assert values["text"] == "x"


def test_bytes_that_change_never_lead_out_of_the_buffer(provider_jvm: ProviderJvm) -> None:
    spark = provider_jvm.new("UnsafeRowBytes")

    @examples(35)
    @given(single_rows, st.integers(0, 1 << 32))
    def agree(single_row: tuple[Any, tuple[Any, Any]], seed: int) -> None:
        described, (of_spark, _) = single_row
        pickled = pickle.dumps([of_spark], protocol=4)
        (row,) = split(bytes(spark.ofValues(json.dumps(described), pickled)))
        schema = parse_spark_schema(json.dumps(described))
        chance = random.Random(seed)
        for _ in range(8 if row else 0):
            damaged = bytearray(row)
            damaged[chance.randrange(len(row))] ^= chance.randint(1, 255)
            try:
                decoded = decode_rows(pa.array([bytes(damaged)], pa.binary()), schema, "value")
            except MalformedRowError:
                continue
            decoded.validate(full=True)

    agree()


rows_of_words = st.integers(0, 6).flatmap(
    lambda words: st.binary(min_size=8 * words, max_size=8 * words)
)


@given(st.lists(st.tuples(rows_of_words, st.none() | rows_of_words), max_size=8))
def test_a_row_s_checksum_is_that_of_a_plain_loop(rows: list[tuple[bytes, bytes | None]]) -> None:
    keys = pa.array([key for key, _ in rows], pa.binary())
    values = pa.array([value for _, value in rows], pa.binary())
    assert crc32c_of_rows(keys, values).to_pylist() == [
        crc32c(key + (value or b"")) for key, value in rows
    ]
