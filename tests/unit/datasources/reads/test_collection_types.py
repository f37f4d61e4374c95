"""Exploded lists and maps give a row for each element, with the right names and types."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, LongType, MapType, StructField, StructType

from checkpoint_store.states.state_history import StateShape
from datasources.reads.collection_types import FlattenedColumns
from spark_state.errors import ConfigurationError

NUMBER = StructType([StructField("n", LongType())])
ITEM = pa.struct([("n", pa.int64())])


def shape(kind: str, *columns: str) -> StateShape:
    return StateShape("items", "{}", "{}", columns, kind=kind)


LISTS = FlattenedColumns.of(shape("list", "key", "list_value"), "/store")
MAPS = FlattenedColumns.of(shape("map", "key", "user_map_key", "map_value"), "/store")


def items(*numbers: int) -> list[dict[str, int]]:
    return [{"n": number} for number in numbers]


def exploded(columns: FlattenedColumns, state: pa.Table) -> list[dict[str, object]]:
    return [row for rows in columns.rows(state) for row in rows.to_pylist()]


def test_a_list_is_a_row_for_each_element() -> None:
    lists = pa.array([items(9), items(1, 2), [], None, items(3, 3)], pa.list_(ITEM))
    state = pa.table({"key": list("xabcd"), "list_value": lists}).slice(1)
    rows = [("a", 1), ("a", 2), ("d", 3), ("d", 3)]
    expected = [{"key": key, "list_element": {"n": n}} for key, n in rows]
    assert exploded(LISTS, state) == expected
    assert exploded(LISTS, pa.concat_tables([state, state])) == expected * 2
    without_key = state.select(LISTS.stored_names(["list_element"]))
    assert exploded(LISTS, without_key) == [{"list_element": {"n": n}} for _, n in rows]
    assert exploded(LISTS, state[:0]) == []


def test_a_map_is_a_row_for_each_entry() -> None:
    first, second, third = items(1, 2, 3)
    maps = pa.array([[(third, None)], [(first, second), (second, None)], None], pa.map_(ITEM, ITEM))
    state = pa.table({"key": list("xab"), "user_map_key": [7, 8, 9], "map_value": maps}).slice(1)
    assert exploded(MAPS, state) == [
        {"key": "a", "user_map_key": 8, "user_map_key_": first, "user_map_value": second},
        {"key": "a", "user_map_key": 8, "user_map_key_": second, "user_map_value": None},
    ]


@pytest.mark.parametrize(
    ("columns", "stored", "flattened"),
    [
        (
            LISTS,
            StructType().add("key", "string").add("list_value", ArrayType(NUMBER)),
            "struct<key:string,list_element:struct<n:bigint>>",
        ),
        (
            MAPS,
            StructType()
            .add("key", "string")
            .add("user_map_key", "integer")
            .add("map_value", MapType(NUMBER, StructType().add("v", "integer"))),
            "struct<key:string,user_map_key:int,user_map_key_:struct<n:bigint>,"
            "user_map_value:struct<v:int>>",
        ),
    ],
)
def test_the_columns_have_the_types_of_the_elements(
    columns: FlattenedColumns, stored: StructType, flattened: str
) -> None:
    assert columns.schema(stored).simpleString() == flattened


def test_a_state_without_elements_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'items' of /store is a value state"):
        FlattenedColumns.of(shape("value", "key", "n"), "/store")
