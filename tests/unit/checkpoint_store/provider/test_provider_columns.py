"""The columns of a provider's store get unique names and the right types."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_store.provider.provider_columns import ProviderColumns
from checkpoint_store.states.row_fold import flat_rows, flat_schema


def schema(*fields: tuple[str, Any]) -> str:
    described = [
        {"name": name, "type": spark_type, "nullable": True, "metadata": {}}
        for name, spark_type in fields
    ]
    return json.dumps({"type": "struct", "fields": described})


def columns(key: str, value: str) -> ProviderColumns:
    return ProviderColumns.of("default", key, value, "schema")


def test_columns_of_one_name_get_names_of_their_own() -> None:
    made = columns(
        schema(("id", "long"), ("ID", "long"), ("_op", "string")),
        schema(("sum", "long"), ("Sum", "long"), ("id", "long"), ("sum_", "long")),
    )
    assert made.shape.columns == ("id", "ID_", "_op_", "sum", "Sum_", "id__", "sum__")
    assert flat_schema(made.shape).names == [*made.shape.columns]


def test_rows_are_those_of_a_state_file() -> None:
    made = columns(schema(("id", "long"), ("_state", "long")), schema(("a", "long"), ("a", "long")))
    keys = pa.array([{"id": 1, "_state_": 2}, {"id": 3, "_state_": 4}], made.schemas.key.arrow)
    values = pa.array([{"a": 5, "a_": 6}, None], made.schemas.value.arrow)
    rows = flat_rows(made.batch(keys, values, 7), made.shape, flat_schema(made.shape))
    assert rows.to_pylist() == [
        {"id": 1, "_state_": 2, "a": 5, "a_": 6, "_key_group": 7, "_op": "put"},
        {"id": 3, "_state_": 4, "a": None, "a_": None, "_key_group": 7, "_op": "delete"},
    ]


@pytest.mark.parametrize(
    ("key", "value"), [({}, {"count": 1}), ({"id": 1}, {})], ids=["no key", "no value"]
)
def test_a_store_may_have_no_key_or_no_value(key: dict[str, int], value: dict[str, int]) -> None:
    made = columns(*(schema(*((name, "long") for name in part)) for part in (key, value)))
    keys, values = (
        pa.array([key], made.schemas.key.arrow),
        pa.array([value], made.schemas.value.arrow),
    )
    rows = flat_rows(made.batch(keys, values, 0), made.shape, flat_schema(made.shape))
    assert rows.to_pylist() == [{**key, **value, "_key_group": 0, "_op": "put"}]


def test_a_user_defined_type_is_the_type_that_it_is_stored_as() -> None:
    point = {
        "type": "udt",
        "class": "some.Point",
        "sqlType": {"type": "array", "elementType": "double", "containsNull": False},
    }
    made = columns(schema(("id", "long")), schema(("point", point)))
    assert flat_schema(made.shape).field("point").type == pa.list_(
        pa.field("element", pa.float64())
    )
    assert "udt" not in made.shape.value_schema_json


def test_the_watermark_of_a_column_stays_in_the_query() -> None:
    field = {"name": "at", "type": "timestamp", "nullable": True}
    marked = json.dumps(
        {
            "type": "struct",
            "fields": [
                {**field, "metadata": {"spark.watermarkDelayMs": 60_000, "comment": "when"}}
            ],
        }
    )
    made = columns(marked, schema(("count", "long")))
    (key,) = json.loads(made.shape.key_schema_json)["fields"]
    assert key["metadata"] == {"comment": "when"}
