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


def is_same_but_for_nulls(schema_json: str, other_json: str) -> bool:
    """Whether two schemas are the same, whatever may be null inside of their columns."""
    if schema_json == other_json:
        return True
    schema, other_schema = (_without_nulls(json.loads(text)) for text in (schema_json, other_json))
    return bool(schema == other_schema)


_MAY_BE_NULL = ("nullable", "containsNull", "valueContainsNull")


def _without_nulls(described: Any) -> Any:
    if isinstance(described, list):
        return [*map(_without_nulls, described)]
    if not isinstance(described, dict):
        return described
    return {
        name: _without_nulls(value) for name, value in described.items() if name not in _MAY_BE_NULL
    }
