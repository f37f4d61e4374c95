"""Schemas between Spark's JSON form, which stores keep, and Arrow, which the engine runs on."""

from __future__ import annotations

import json

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_state.state_descriptor import StateDescriptor, StateKind

_TIME_ZONE = "UTC"


def struct_from_json(schema_json: str) -> StructType:
    """The Spark schema of its JSON text."""
    return StructType.fromJson(json.loads(schema_json))


def arrow_schema(schema: StructType, *, large_types: bool = False) -> pa.Schema:
    """The Arrow schema of a Spark schema, timestamps in UTC."""
    return to_arrow_schema(schema, timezone=_TIME_ZONE, prefers_large_types=large_types)


def value_state_descriptor(name: str, schema_json: str) -> StateDescriptor:
    """The descriptor of a value state from the JSON text of its schema."""
    kind: StateKind = "value"
    value_type = pa.struct(list(arrow_schema(struct_from_json(schema_json))))
    return StateDescriptor(name, kind, value_type, schema_json)
