"""Messages show a schema in the form that a user would write."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from checkpoint_store.schema_text import schema_text, schema_texts

DDL = (
    "a tinyint, b smallint, c int NOT NULL, d bigint, e float, f double, g decimal(10,2), "
    "h boolean, i string, j binary, k date, l timestamp, m timestamp_ntz, n array<int>, "
    "o map<string, array<bigint>>, p struct<x: int, `y z`: struct<q: string>>, `a``b` string, "
    "r interval day to second, s interval year, t void"
)


def field(name: str, described: Any, nullable: bool = True) -> dict[str, Any]:
    return {"name": name, "type": described, "nullable": nullable, "metadata": {}}


def schema(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


@pytest.mark.parametrize(
    ("described", "text"),
    [
        ("long", "bigint"),
        ("integer", "int"),
        ("short", "smallint"),
        ("byte", "tinyint"),
        ("null", "void"),
        ("decimal(10,2)", "decimal(10,2)"),
        ("interval day to second", "interval day to second"),
        ({"type": "array", "elementType": "long", "containsNull": True}, "array<bigint>"),
        (
            {
                "type": "map",
                "keyType": "string",
                "valueType": schema(field("n", "integer", nullable=False)),
                "valueContainsNull": True,
            },
            "map<string, struct<n: int NOT NULL>>",
        ),
        ({"type": "udt", "class": "a.B", "sqlType": "double"}, "double"),
        ({"type": "of a Spark to come"}, "of a Spark to come"),
    ],
)
def test_types_have_the_names_of_sql(described: Any, text: str) -> None:
    columns = schema(field("key", "string", nullable=False), field("v", described))
    assert schema_text(json.dumps(columns)) == f"key string NOT NULL, v {text}"


@pytest.mark.spark
def test_spark_takes_back_what_is_said(spark: SparkSession) -> None:
    schema = StructType.fromDDL(DDL)
    assert schema_text(schema.json()) == DDL
    assert StructType.fromDDL(schema_text(schema.json())) == schema


def test_names_that_are_no_words_are_quoted() -> None:
    columns = schema(field("a b", "long"), field("c`d", "date"), field("2e", "date"))
    assert schema_text(json.dumps(columns)) == "`a b` bigint, `c``d` date, `2e` date"


@pytest.mark.parametrize("text", ["[]", "no JSON", '{"type":"long"}', '{"fields":[1]}'])
def test_what_is_no_schema_stays_as_it_is(text: str) -> None:
    assert schema_text(text) == text


def test_schemas_that_differ_in_what_ddl_does_not_say_stay_as_they_are() -> None:
    arrays = [
        json.dumps(schema(field("v", {"type": "array", "elementType": "long", "containsNull": n})))
        for n in (True, False)
    ]
    assert schema_texts(*arrays) == tuple(arrays)
    assert schema_texts(arrays[0], json.dumps(schema(field("v", "long")))) == (
        "v array<bigint>",
        "v bigint",
    )
