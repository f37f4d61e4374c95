"""The rules by which the columns of a table may change. Pure.

A table's schema is the JSON of Spark's StructType. Nullability is not part of the schema: any
column but a key may be null. New columns are added at the end, if the writer allows new columns.
Nothing else ever changes, because written files stay unchanged (I1). Columns, and fields of
structs, are matched by name: rows and files may have columns and fields in any order.
"""

from __future__ import annotations

import json
from typing import Any

from checkpoint_store.errors import TableSchemaError
from checkpoint_store.files.schema_columns import schema_of
from checkpoint_store.schema_text import type_text

_RENAME = "change the rows, or write into another table"
_REBUILD = (
    "build its structs again with the fields of the table, as named_struct does (Spark's cast "
    f"takes the fields of structs by place, not by name); {_RENAME}"
)


def evolved(url: str, table: str, rows: str, *, merge: bool) -> str:
    """The schema of a table after rows of another schema are written. Both schemas come from
    `without_nullability`. `merge`: the rows may have columns that the table does not have. Raises
    TableSchemaError, which names the column and both types."""
    of_table, of_rows = _types(table), _types(rows)
    for name, type_ in of_table.items():
        if name not in of_rows:
            near = [candidate for candidate in of_rows if candidate.lower() == name.lower()]
            column = f"lit(None).cast({type_text(type_)!r})"
            remedy = f"rename {near[0]!r}" if near else f"add .withColumn({name!r}, {column})"
            raise TableSchemaError(url, f"the rows have no column {name!r}", remedy)
        if _by_name(of_rows[name]) != _by_name(type_):
            types = f"{type_text(type_)} in the table and {type_text(of_rows[name])} in the rows"
            remedy = _REBUILD if "struct<" in type_text(of_rows[name]) else f"cast it; {_RENAME}"
            raise TableSchemaError(url, f"column {name!r} is {types}", remedy)
    added = [name for name in of_rows if name not in of_table]
    if added and not merge:
        raise TableSchemaError(
            url,
            f"the table has no column {', '.join(map(repr, added))}",
            'write with option("mergeSchema", "true") to add it, or drop it from the rows',
        )
    for place, name in enumerate(added):
        if name.lower() in (earlier.lower() for earlier in (*of_table, *added[:place])):
            raise TableSchemaError(url, f"column {name!r} differs from one only in case", _RENAME)
    fields = json.loads(table)["fields"] + [
        field for field in json.loads(rows)["fields"] if field["name"] in added
    ]
    return schema_of(fields)


def _types(schema_json: str) -> dict[str, Any]:
    return {field["name"]: field["type"] for field in json.loads(schema_json)["fields"]}


def _by_name(described: Any) -> Any:
    """A type with the fields of its structs sorted by name. Fields that share a name stay in
    order."""
    if isinstance(described, list):
        return [_by_name(part) for part in described]
    if not isinstance(described, dict):
        return described
    ordered = {key: _by_name(value) for key, value in described.items()}
    if described.get("type") == "struct":
        names = [field["name"] for field in described["fields"]]
        if len(set(names)) == len(names):
            ordered["fields"].sort(key=lambda field: field["name"])
    return ordered
