"""Spark's schemas as DDL text, for messages. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

_OF_SPARK = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "null": "void",
}
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def schema_text(schema_json: str) -> str:
    """Return the columns of a schema in Spark's JSON as DDL. Text without a schema is returned
    unchanged."""
    try:
        fields = json.loads(schema_json)["fields"]
        return ", ".join(_field(field, " ") for field in fields)
    except (ValueError, KeyError, TypeError):
        return schema_json


def schema_texts(schema_json: str, other_json: str) -> tuple[str, str]:
    """Return two different schemas as DDL, or both as JSON if the DDL texts are equal."""
    texts = schema_text(schema_json), schema_text(other_json)
    return texts if texts[0] != texts[1] else (schema_json, other_json)


def type_text(described: Any) -> str:
    """Return the DDL of a type. `described`: the type in Spark's JSON, parsed."""
    if isinstance(described, str):
        return _OF_SPARK.get(described, described)
    match described["type"]:
        case "struct":
            return f"struct<{', '.join(_field(field, ': ') for field in described['fields'])}>"
        case "array":
            return f"array<{type_text(described['elementType'])}>"
        case "map":
            return f"map<{type_text(described['keyType'])}, {type_text(described['valueType'])}>"
        case "udt":
            return type_text(described["sqlType"])
        case unknown:
            return str(unknown)


def _field(field: dict[str, Any], separator: str) -> str:
    name = field["name"]
    if not _PLAIN_NAME.fullmatch(name):
        name = f"`{name.replace('`', '``')}`"
    required = "" if field.get("nullable", True) else " NOT NULL"
    return f"{name}{separator}{type_text(field['type'])}{required}"
