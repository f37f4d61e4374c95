"""Spark's types and schemas as people write them, for messages. Pure.

What is read here is the JSON that Spark's StructType writes: {"type": "long", …} is bigint.
"""

from __future__ import annotations

import json
from typing import Any

_NAMES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "null": "void",
}


def schema_ddl(schema_json: str) -> str:
    """The columns of a schema: id bigint, tags array<string>."""
    return ", ".join(
        f"{_name(field)} {type_ddl(field['type'])}" for field in json.loads(schema_json)["fields"]
    )


def type_ddl(described: Any) -> str:
    """A type, as Spark describes it in JSON."""
    match described:
        case {"type": "struct", "fields": fields}:
            inner = ",".join(f"{_name(field)}:{type_ddl(field['type'])}" for field in fields)
            return f"struct<{inner}>"
        case {"type": "array", "elementType": element}:
            return f"array<{type_ddl(element)}>"
        case {"type": "map", "keyType": key, "valueType": value}:
            return f"map<{type_ddl(key)},{type_ddl(value)}>"
        case {"type": "udt", "sqlType": stored}:
            return type_ddl(stored)
        case str(name):
            return _NAMES.get(name, name)
    return json.dumps(described)


def _name(field: dict[str, Any]) -> str:
    name: str = field["name"]
    return name if name.isidentifier() else "`{}`".format(name.replace("`", "``"))
