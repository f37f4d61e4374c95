"""Columns of schemas in the JSON of Spark's StructType. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def column_names(schema_json: str) -> tuple[str, ...]:
    """Return the names of the columns, in order."""
    return tuple(field["name"] for field in json.loads(schema_json)["fields"])


def selected(schema_json: str, names: Sequence[str]) -> str:
    """Return the schema of some columns, in the order of `names`."""
    fields = {field["name"]: field for field in json.loads(schema_json)["fields"]}
    return schema_of([fields[name] for name in names])


def schema_of(fields: Sequence[Any]) -> str:
    """Return the schema of `fields` as JSON; equal fields give equal text."""
    return as_text({"type": "struct", "fields": fields})


def as_text(schema: Any) -> str:
    """Return a schema as JSON; equal schemas give equal text."""
    return json.dumps(schema, sort_keys=True, separators=(",", ":"))


def are_same_types(types_json: str, other_json: str) -> bool:
    """Return True if two schemas or types of keys, in Spark's JSON, are equal apart from
    nullability and metadata. Nullability and metadata do not change the values of a key."""
    return types_json == other_json or (
        without_nullability(types_json) == without_nullability(other_json)
    )


def without_nullability(schema_json: str) -> str:
    """Return the schema with all fields nullable, at every depth, and without metadata of
    columns."""
    return as_text(_relaxed(json.loads(schema_json)))


_OF_FIELD = {"nullable": True, "metadata": {}}
_OF_TYPES = {"array": {"containsNull": True}, "map": {"valueContainsNull": True}}


def _relaxed(described: Any) -> Any:
    if isinstance(described, list):
        return [*map(_relaxed, described)]
    if not isinstance(described, dict):
        return described
    parts = {name: _relaxed(value) for name, value in described.items() if name != "metadata"}
    # A writer may leave out what says nothing, so it is added.
    return parts | (_OF_FIELD if "name" in parts else _OF_TYPES.get(str(parts.get("type")), {}))
