"""Key schemas with equal types are equal, whatever the names, metadata and nested nulls."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.types import StructField, StructType, TimestampType

from checkpoint_store.files.schema_columns import are_same_types
from spark_state.testing.ddl_schemas import schema_of

KEY = "key struct<a: int, b: array<string>>"


@pytest.mark.parametrize(
    ("given", "same"),
    [
        (KEY, True),
        ("key struct<a: int NOT NULL, b: array<string>>", True),
        ("key struct<a: bigint, b: array<string>>", False),
        ("key struct<b: array<string>, a: int>", False),
        (f"{KEY}, more int", False),
    ],
)
def test_keys_are_the_same_whatever_may_be_null_inside_of_them(given: str, same: bool) -> None:
    schema, other_schema = (schema_of(text, "key") for text in (KEY, given))
    assert are_same_types(schema.json(), other_schema.json()) is same


def test_metadata_of_fields_are_no_part_of_a_key() -> None:
    inner = StructType([StructField("start", TimestampType(), metadata={"delay": 10_000})])
    window = StructType([StructField("w", inner)])
    plain = StructType([StructField("w", StructType([StructField("start", TimestampType())]))])
    assert window.json() != plain.json()
    assert are_same_types(window.json(), plain.json())
    left_out = '{"fields":[{"name":"key","nullable":true,"type":"string"}],"type":"struct"}'
    assert are_same_types(left_out, left_out.replace('"name"', '"metadata":{},"name"'))


def test_types_are_compared_without_the_names_of_their_columns() -> None:
    names, others = (schema_of(text, "key") for text in ("a int, b string", "c int, d string"))
    types, other_types = (
        json.dumps([field.dataType.jsonValue() for field in schema]) for schema in (names, others)
    )
    assert are_same_types(types, other_types)
    assert not are_same_types(names.json(), others.json())
