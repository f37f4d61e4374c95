"""The columns of a provider store, under the names that readers see. Pure.

Names of fields repeat in Spark's keys and values: an aggregation that uses a function twice has two
columns of one name, and a value may repeat a column of the key. Readers see a different name for
each column: a repeated name gets underscores appended. Names that differ only in upper and lower
case count as the same name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_store.files.state_file import (
    DELETE,
    KEY_GROUP_COLUMN,
    OP,
    PUT,
    STATE,
    STATE_METADATA,
)
from checkpoint_store.provider.provider_file import StateSchemas
from checkpoint_store.states.row_fold import ADDED_COLUMNS
from checkpoint_store.states.state_history import StateShape

_WATERMARK = "spark.watermarkDelayMs"
# An array of a type that is known when the array is read.
_AnyArray = Any


@dataclass(frozen=True, slots=True)
class ProviderColumns:
    """The columns of a store. `shape`: the columns in the form that readers see. `schemas`: the
    types of keys and values, under the same names."""

    shape: StateShape
    schemas: StateSchemas

    @classmethod
    def of(
        cls, store_name: str, key_schema_json: str, value_schema_json: str, written_in: str
    ) -> ProviderColumns:
        """The columns of a store, from the schemas that Spark has written into the file
        `written_in`. Raises UnsupportedSparkTypeError; ValueError, KeyError or TypeError for a text
        without a schema."""
        taken = {name.lower() for name in ADDED_COLUMNS}
        keys, values = _fields(key_schema_json, taken), _fields(value_schema_json, taken)
        shape = StateShape(
            state=store_name,
            key_schema_json=json.dumps({"type": "struct", "fields": keys}),
            value_schema_json=json.dumps({"type": "struct", "fields": values}),
            columns=tuple(field["name"] for field in (*keys, *values)),
            key_groups_follow_keys=False,
        )
        schemas = shape.key_schema_json, shape.value_schema_json
        return cls(shape, StateSchemas.of(*schemas, written_in))

    def batch(self, keys: _AnyArray, values: _AnyArray, partition: int) -> pa.RecordBatch:
        """Build rows in the form of a state file from the keys and values of a partition. `keys`
        and `values` are structs with the types in `schemas`. A null value deletes its key."""
        count = len(keys)
        is_put = values.is_valid()
        columns: dict[pa.Field[Any], _AnyArray] = {
            pa.field(KEY_GROUP_COLUMN, pa.int32()): pa.repeat(partition, count).cast(pa.int32()),
            pa.field(STATE, pa.string()): pa.repeat(self.shape.state, count),
            pa.field(OP, pa.string()): pc.if_else(is_put, PUT, DELETE),
        }
        columns |= dict(zip(keys.type, keys.flatten(), strict=True))
        if len(values.type):
            metadata = {STATE_METADATA: self.shape.state.encode()}
            # Longer than the name of any key column, so different from all.
            name = "_".join(["_value", *(field.name for field in keys.type)])
            columns[pa.field(name, values.type, metadata=metadata)] = values
        return pa.RecordBatch.from_arrays([*columns.values()], schema=pa.schema([*columns]))


def _fields(schema_json: str, taken: set[str]) -> list[dict[str, Any]]:
    """The fields of a schema, renamed if their name is in `taken`. Adds the names to `taken`."""
    schema = json.loads(schema_json, object_hook=_as_stored)
    fields = []
    for field in schema["fields"]:
        name = field["name"]
        while name.lower() in taken:
            name += "_"
        taken.add(name.lower())
        fields.append({**field, "name": name})
    return fields


def _as_stored(described: dict[str, Any]) -> Any:
    """A part of a schema with the stored type in place of a user-defined type. Drops the watermark
    of a column, which means nothing to readers."""
    if described.get("type") == "udt":
        return described["sqlType"]
    return {name: value for name, value in described.items() if name != _WATERMARK}
