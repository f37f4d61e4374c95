"""Without Spark, DDL text becomes the same schema as in Spark's own parser."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from spark_state.errors import ConfigurationError
from spark_state.testing.ddl_schemas import schema_of

TEXTS = {
    "n long": "struct<n:bigint>",
    "n bigint, m int NOT NULL": "struct<n:bigint,m:int>",
    "a byte, b short, c integer, d tinyint, e smallint": (
        "struct<a:tinyint,b:smallint,c:int,d:tinyint,e:smallint>"
    ),
    "f float, g double, h real": "struct<f:float,g:double,h:float>",
    "s string, t binary, u boolean": "struct<s:string,t:binary,u:boolean>",
    "d date, t timestamp, u timestamp_ntz": "struct<d:date,t:timestamp,u:timestamp_ntz>",
    "x decimal(10,2), y decimal(20, 0)": "struct<x:decimal(10,2),y:decimal(20,0)>",
    "x decimal, y dec(5), z numeric(38, 38)": (
        "struct<x:decimal(10,0),y:decimal(5,0),z:decimal(38,38)>"
    ),
    "a array<long>, m map<string, array<int>>": "struct<a:array<bigint>,m:map<string,array<int>>>",
    "s struct<p: long, q: struct<r: byte>>": "struct<s:struct<p:bigint,q:struct<r:tinyint>>>",
    "i interval day to second, j array<interval hour>, k interval minute TO second": (
        "struct<i:interval day to second,j:array<interval hour>,k:interval minute to second>"
    ),
    "i interval year to month, j interval month": (
        "struct<i:interval year to month,j:interval month>"
    ),
    "v void, w array<void>": "struct<v:void,w:array<void>>",
    "`odd name` long, short short": "struct<odd name:bigint,short:smallint>",
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_becomes_the_schema_that_spark_makes_of_it(text: str) -> None:
    assert schema_of(text, "rows").simpleString() == TEXTS[text]


def test_not_null_is_kept() -> None:
    optional, needed = schema_of("a long, b long NOT NULL", "rows")
    assert (optional.nullable, needed.nullable) == (True, False)


def test_a_schema_is_taken_as_it_is() -> None:
    schema = StructType()
    assert schema_of(schema, "rows") is schema


@pytest.mark.parametrize(
    "text",
    [
        *("n", "n variant", "n strang", "long", "n array<", "n interval", "n interval year to day"),
        *("n array<int, int>", "n map<string>", "n decimal(x)", "n decimal(2, 3)"),
        *("n decimal(39)", "n long m long", "n long); DROP TABLE (m long", "'", "n struct<>"),
    ],
)
def test_what_is_no_schema_is_an_error_that_says_whose(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^rows: .* a StructType") as raised:
        schema_of(text, "rows")
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("n strang", "is not a schema, cannot read it; write a name and a type"),
        ("n long, m", "is not a schema, 'm' has no type"),
        ("n map<string>", "type MAP<STRING> is not known here"),
    ],
)
def test_the_error_says_what_cannot_be_read(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        schema_of(text, "rows")
