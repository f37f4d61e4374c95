"""A table accepts the allowed changes of columns and refuses any other change."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructType

from checkpoint_store.errors import TableSchemaError
from checkpoint_store.files.schema_columns import column_names, selected, without_nullability
from checkpoint_store.tables.table_schema import evolved
from tests.support.tables.table_rows_of import schema_json

URL = "file:///table"
TABLE = schema_json(id="long", name="string", count="integer")


def refused(rows: str, *, merge: bool = False, table: str = TABLE) -> str:
    with pytest.raises(TableSchemaError) as caught:
        evolved(URL, table, rows, merge=merge)
    assert caught.value.url == URL
    return str(caught.value)


DOUBLED = [
    {"name": "a", "type": spark_type, "nullable": True, "metadata": {}}
    for spark_type in ("long", "string")
]


@pytest.mark.parametrize("merge", [False, True])
def test_the_same_columns_in_any_order_change_nothing(merge: bool) -> None:
    shuffled = schema_json(count="integer", id="long", name="string")
    assert evolved(URL, TABLE, TABLE, merge=merge) == TABLE
    assert evolved(URL, TABLE, shuffled, merge=merge) == TABLE


def test_new_columns_are_added_at_the_end_in_the_order_of_the_rows() -> None:
    rows = schema_json(b="date", id="long", a="double", name="string", count="integer")
    expected = schema_json(id="long", name="string", count="integer", b="date", a="double")
    assert evolved(URL, TABLE, rows, merge=True) == expected


@pytest.mark.parametrize(
    ("merges", "rows", "told"),
    [
        (
            [False],
            {"id": "long", "name": "string", "count": "integer", "a": "date", "b": "date"},
            ["the table has no column 'a', 'b'", 'option("mergeSchema", "true")'],
        ),
        (
            [False, True],
            {"id": "long", "count": "integer"},
            ["no column 'name'; add .withColumn('name', lit(None).cast('string'))"],
        ),
        (
            [False, True],
            {"id": "long", "name": "string", "count": "long"},
            ["column 'count' is int in the table and bigint in the rows", "cast it"],
        ),
        (
            [False, True],
            {"id": "long", "Name": "string", "count": "integer"},
            ["no column 'name'; rename 'Name'"],
        ),
        (
            [True],
            {"id": "long", "name": "string", "count": "integer", "COUNT": "integer"},
            ["'COUNT' differs from one only in case"],
        ),
        (
            [True],
            {"id": "long", "name": "string", "count": "integer", "x": "long", "X": "long"},
            ["only in case"],
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused_with_the_remedy(
    merges: list[bool], rows: dict[str, str], told: list[str]
) -> None:
    for merge in merges:
        message = refused(schema_json(**rows), merge=merge)
        assert [words for words in told if words not in message] == []


def test_a_change_within_a_nested_type_is_a_change_of_type() -> None:
    table = schema_json(id="long", tags=json.loads(schema_json(a="long")))
    rows = schema_json(id="long", tags=json.loads(schema_json(a="long", b="long")))
    message = refused(rows, merge=True, table=table)
    assert "is struct<a: bigint> in the table and struct<a: bigint, b: bigint> in the" in message
    assert "by place, not by name" in message
    assert "cast it" not in message


def test_fields_of_structs_may_be_in_another_order_at_any_depth() -> None:
    def nested(*names: str) -> str:
        of_structs = json.loads(schema_json(**dict.fromkeys(names, "double")))
        places = {"type": "array", "elementType": of_structs, "containsNull": True}
        inner = {"type": "map", "keyType": "string", "valueType": places, "valueContainsNull": True}
        return schema_json(id="long", path=json.loads(schema_json(points=inner)))

    table = nested("lat", "lon")
    assert evolved(URL, table, nested("lon", "lat"), merge=False) == table
    assert "struct<" in refused(nested("lon", "Lat"), merge=False, table=table)
    twice = schema_json(id="long", x={"type": "struct", "fields": DOUBLED})
    other = schema_json(id="long", x={"type": "struct", "fields": DOUBLED[::-1]})
    assert evolved(URL, twice, twice, merge=False) == twice
    assert "struct<" in refused(other, merge=False, table=twice), "two fields share a name"


def test_nullability_does_not_matter_at_any_depth() -> None:
    def described(nullable: bool) -> str:
        point = StructType().add("x", LongType(), nullable, {"comment": "m"})
        places = MapType(StringType(), ArrayType(point, nullable), nullable)
        return StructType().add("places", places, nullable).json()

    strict, lax = without_nullability(described(False)), without_nullability(described(True))
    assert strict == lax
    assert "false" not in strict
    assert "comment" not in strict
    assert evolved(URL, lax, strict, merge=False) == lax


def test_some_columns_are_selected_in_the_order_that_is_asked_for() -> None:
    assert selected(TABLE, ["count", "id"]) == schema_json(count="integer", id="long")
    assert column_names(TABLE) == ("id", "name", "count")
    assert column_names(selected(TABLE, [])) == ()
