"""Conversion of schemas between Spark's JSON form, used in stores, and Arrow, used in the
engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StructField, StructType

from checkpoint_store.files.element_columns import EXPIRY, LIST_VALUE, MAP_VALUE
from checkpoint_store.files.schema_columns import are_same_types
from spark_state.errors import UnsupportedOperationError
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.operator_state.broadcast_state import broadcast_item_type
from spark_state.operator_state.meta_info import OperatorStateMetaInfo, OperatorStateMode
from spark_state.processor.condition_errors import state_not_nullable, type_without_arrow
from spark_state.processor.stored_schema import struct_from_json
from spark_state.state_descriptor import StateDescriptor, StateKind

_TIME_ZONE = "UTC"


def arrow_schema(schema: StructType, *, large_types: bool = False) -> pa.Schema:
    """Convert a Spark schema to Arrow, with timestamps in UTC.

    Raises TypeWithoutArrowError for a type that PySpark cannot convert to Arrow.
    """
    fields: list[pa.Field[Any]] = []
    for field in schema:
        try:
            fields += to_arrow_schema(
                StructType([field]), timezone=_TIME_ZONE, prefers_large_types=large_types
            )
        except PySparkTypeError as error:
            raise type_without_arrow(field.name, field.dataType.simpleString()) from error
    return pa.schema(fields)


def column_schema(kind: StateKind, name: str, schemas: Sequence[StructType]) -> StructType:
    """Return the schema of a state's column, from the schemas in the state's declaration.

    Raises UnsupportedOperationError for a user key with a map.
    """
    if kind == "list":
        (element,) = schemas
        return StructType([StructField(LIST_VALUE, ArrayType(element, containsNull=False))])
    if kind == "map":
        key, value = schemas
        if holds_map(key):
            raise UnsupportedOperationError(
                f"a map in the user key of map state {name!r} is not supported: maps have no order "
                "that makes two of them one key; use an array of structs that you sort"
            )
        return StructType([StructField(MAP_VALUE, MapType(key, value, valueContainsNull=False))])
    (schema,) = schemas
    return schema


def key_columns(fields: Sequence[StructField]) -> KeyColumns:
    """Return the key columns in the form that state tables need."""
    return KeyColumns(
        names=tuple(field.name for field in fields),
        arrow_types=tuple(field.type for field in arrow_schema(StructType(list(fields)))),
        type_names=tuple(str(field.dataType.jsonValue()) for field in fields),
    )


def have_same_types(fields: Sequence[StructField], others: Sequence[StructField]) -> bool:
    """Return True if both lists of fields have the same types in the same order. Names may
    differ."""
    types, other_types = (
        json.dumps([field.dataType.jsonValue() for field in each]) for each in (fields, others)
    )
    return are_same_types(types, other_types)


def fields_text(fields: Sequence[StructField]) -> str:
    """Return the names and types of fields, for a message."""
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in fields)


@dataclass(frozen=True, slots=True)
class ParsedSchemas:
    """Parser for the schemas of states. `parse(schema, owner)`: parses a StructType or DDL text."""

    parse: Callable[[Any, str], StructType]

    def keyed(self, kind: StateKind, name: str, schemas: tuple[Any, ...]) -> StateDescriptor:
        """Return the descriptor of a state of keys."""
        parsed = [self.parse(schema, f"state {name!r}") for schema in schemas]
        return state_descriptor(name, kind, column_schema(kind, name, parsed).json())

    def operator(
        self, mode: OperatorStateMode, name: str, schemas: tuple[Any, ...]
    ) -> OperatorStateMetaInfo:
        """Return the description of an operator state. `schemas`: schema of an item; for a
        broadcast state, the schemas of keys and values."""
        parsed = (self.parse(schema, f"operator state {name!r}") for schema in schemas)
        types = [pa.struct(list(arrow_schema(schema))) for schema in parsed]
        item_type = broadcast_item_type(*types) if mode == "broadcast" else types[0]
        return OperatorStateMetaInfo(name, mode, item_type)


def element_schema(state: StateDescriptor) -> StructType:
    """Return the schema of a state's value. For a list state, this is the schema of an element; for
    a map state, the schema of an entry's value."""
    column = struct_from_json(state.schema_json)
    match state.kind, column.fields[0].dataType:
        case ("list", ArrayType(elementType=StructType() as element)):
            return element
        case ("map", MapType(valueType=StructType() as value)):
            return value
    return column


def check_nullable(states: Sequence[StateDescriptor]) -> None:
    """Raise Spark's error if a field of a state is not nullable. Spark has this rule only for
    states encoded in Avro, so call only if the session asks for Avro.

    As in Spark, the check skips states with a time to live.
    """
    for state in states:
        schema = element_schema(state)
        if state.ttl_ms is None and not all(field.nullable for field in schema):
            raise state_not_nullable(state.name, schema.simpleString())


def holds_map(data_type: DataType) -> bool:
    """Return True if a type is a map type or contains a map type."""
    match data_type:
        case StructType():
            return any(holds_map(field.dataType) for field in data_type.fields)
        case ArrayType():
            return holds_map(data_type.elementType)
    return isinstance(data_type, MapType)


def timers_descriptor(name: str) -> StateDescriptor:
    """Return the descriptor of a state that holds timers."""
    return state_descriptor(name, "timers", StructType([StructField(EXPIRY, LongType())]).json())


def state_descriptor(
    name: str, kind: str, schema_json: str, ttl_ms: int | None = None
) -> StateDescriptor:
    """Return the descriptor of a state, from the kind and the JSON text of the column's schema.

    Raises UnsupportedOperationError for a kind of a later release.
    """
    for supported in get_args(StateKind):
        if supported == kind:
            value_type = pa.struct(list(arrow_schema(struct_from_json(schema_json))))
            return StateDescriptor(name, supported, value_type, schema_json, ttl_ms)
    raise UnsupportedOperationError(
        f"state {name!r} is in the store as a {kind} state, which this release does not have: "
        "run the release that wrote it"
    )
