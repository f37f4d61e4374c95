"""A read has Spark's columns, and a null in a NOT NULL column is an error."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    YearMonthIntervalType,
)

from datasources.reads.asked_columns import AskedColumns, asked_columns
from spark_state.errors import ConfigurationError, UnsupportedOperationError

INNER = StructType().add("a", "integer", nullable=False).add("b", "string")
SCHEMA = (
    StructType()
    .add("id", "long", nullable=False)
    .add("tags", ArrayType(IntegerType()))
    .add("inner", INNER)
    .add("v", "integer")
)


def columns(schema: StructType = SCHEMA) -> AskedColumns:
    asked: AskedColumns = pickle.loads(pickle.dumps(asked_columns("file:///t", schema)))
    return asked


def not_null_tags() -> AskedColumns:
    tags = ArrayType(IntegerType(), containsNull=False)
    values = MapType(StringType(), IntegerType(), valueContainsNull=False)
    return columns(StructType().add("tags", tags).add("m", values))


def rows(**changed: Any) -> pa.Table:
    values = {
        "v": [1, None],
        "id": [1, 2],
        "tags": [[1], None],
        "inner": [{"a": 1, "b": None}, None],
    }
    types = {column.name: column.type for column in columns().stored}
    arrays = {name: pa.array(data, types[name]) for name, data in {**values, **changed}.items()}
    return pa.table(arrays).append_column("more", pa.array([0, 0]))


def test_columns_come_in_the_order_and_with_the_nullability_that_spark_compares() -> None:
    converted = columns().of(rows())
    assert converted.schema == to_arrow_schema(SCHEMA, timezone="UTC")
    assert not converted.schema.field("id").nullable
    converted.validate(full=True)
    assert converted["tags"].to_pylist() == [[1], None]


def test_elements_and_values_that_are_never_null_are_called_so() -> None:
    asked = not_null_tags()
    arrays = {"tags": [[1, 2], None], "m": [[("a", 1)], None]}
    table = pa.table({f.name: pa.array(arrays[f.name], f.type) for f in asked.stored})
    converted = asked.of(table)
    assert converted.schema == asked.asked
    assert not converted.schema.field("tags").type.value_field.nullable
    assert converted.to_pydict() == arrays


def test_what_is_never_null_in_a_struct_may_be_so_where_the_struct_is_null() -> None:
    inner = StructType().add("y", ArrayType(IntegerType()), nullable=False)
    asked = columns(StructType().add("points", ArrayType(inner)))
    values = [[{"y": [1, None]}, None], None, [], [None, {"y": []}]]
    column = pa.array([None, *values], asked.stored.field("points").type).slice(1)
    converted = asked.of(pa.table({"points": column}))
    assert converted.schema == asked.asked
    assert converted["points"].to_pylist() == values
    with pytest.raises(ConfigurationError, match="column 'points' of"):
        asked.of(pa.table({"points": pa.array([[{"y": None}]], column.type)}))


@pytest.mark.parametrize(
    ("name", "values"), [("id", [None, 2]), ("inner", [{"a": None, "b": "x"}, None])]
)
def test_a_null_that_cannot_be_is_an_error_naming_the_column(name: str, values: list[Any]) -> None:
    with pytest.raises(
        ConfigurationError, match=f"column '{name}' of file:///t has a null, but the schema"
    ):
        columns().of(rows(**{name: values}))


def test_a_null_element_that_cannot_be_is_an_error_too() -> None:
    asked = not_null_tags()
    for name, value in (("tags", [1, None]), ("m", [("a", None)])):
        table = pa.table({f.name: pa.array([None], f.type) for f in asked.stored})
        place = table.schema.get_field_index(name)
        column = pa.array([value], asked.stored.field(name).type)
        with pytest.raises(ConfigurationError, match=f"column '{name}' of"):
            asked.of(table.set_column(place, name, column))


def test_a_column_of_another_type_is_left_for_spark_to_refuse() -> None:
    converted = columns(StructType().add("v", "string").add("id", "long")).of(rows())
    assert converted.schema.field("v").type == pa.int32()
    assert converted.column_names == ["v", "id"]


def test_a_column_that_rows_do_not_have_yet_is_null() -> None:
    schema = StructType().add("id", "long")
    converted = columns(schema.add("later", "string")).of_some(rows())
    assert converted.to_pydict() == {"id": [1, 2], "later": [None, None]}
    with pytest.raises(ConfigurationError, match="'later' of file:///t has a null, but the schema"):
        columns(StructType().add("later", "string", nullable=False)).of_some(rows())


def test_a_type_that_pyspark_does_not_take_is_an_error_that_names_the_column() -> None:
    schema = StructType([*SCHEMA]).add("age", YearMonthIntervalType())
    with pytest.raises(
        UnsupportedOperationError,
        match=r"column 'age' of file:///t has type interval year to month, .*open_store",
    ):
        asked_columns("file:///t", schema)
