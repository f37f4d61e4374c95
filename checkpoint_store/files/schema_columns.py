"""Columns of schemas, which are what Spark's StructType writes as JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def column_names(schema_json: str) -> tuple[str, ...]:
    """The names of the columns, in order."""
    return tuple(field["name"] for field in json.loads(schema_json)["fields"])


def selected(schema_json: str, names: Sequence[str]) -> str:
    """The schema of some of the columns, in the order of `names`."""
    fields = {field["name"]: field for field in json.loads(schema_json)["fields"]}
    return schema_of([fields[name] for name in names])


def schema_of(fields: Sequence[Any]) -> str:
    """The schema of these fields, as JSON; the same text for the same fields."""
    return as_text({"type": "struct", "fields": fields})


def as_text(schema: Any) -> str:
    """A schema as JSON; the same text for the same schema."""
    return json.dumps(schema, sort_keys=True, separators=(",", ":"))


def are_same_types(types_json: str, other_json: str) -> bool:
    """Whether two schemas, or types, are the same: for the values of a key it does not matter what
    may be null, nor which metadata a field has. Both are as Spark writes them in JSON."""
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
