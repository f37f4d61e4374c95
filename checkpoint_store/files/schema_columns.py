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
    """Return True if two schemas or types in Spark's JSON are equal apart from nullability and
    metadata: a key's values depend on neither."""
    if types_json == other_json:
        return True
    types, other_types = (_of_values(json.loads(text)) for text in (types_json, other_json))
    return bool(types == other_types)


_NOT_OF_VALUES = ("nullable", "containsNull", "valueContainsNull", "metadata")


def _of_values(described: Any) -> Any:
    if isinstance(described, list):
        return [*map(_of_values, described)]
    if not isinstance(described, dict):
        return described
    return {
        name: _of_values(value) for name, value in described.items() if name not in _NOT_OF_VALUES
    }
