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
