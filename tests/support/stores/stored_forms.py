"""The form of the objects in a folder: names and fields without values. Stores of one format have
the same forms."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

Form = tuple[str, str]
"""The form of an object's name, and the form of the object's bytes."""


def forms_in(folder: Path) -> set[Form]:
    """The forms of all objects below a folder. A database's tables have no form but the name."""
    return {
        (_name(str(path.relative_to(folder))), _form(path))
        for path in folder.rglob("*")
        if path.is_file()
    }


def _name(name: str) -> str:
    name = re.sub(r"[0-9a-f]{12}", "<unique>", name)
    return re.sub(r"\d+", lambda number: "0" * min(len(number[0]), 5), name)


def _form(path: Path) -> str:
    if path.suffix == ".json":
        document = json.loads(path.read_bytes())
        assert document["version"] == 1
        return json.dumps(_fields(document), sort_keys=True)
    if path.suffix == ".arrow":
        return _columns(path)
    return ""


def _fields(value: Any) -> Any:
    """A JSON value with the names of types in place of values."""
    if isinstance(value, dict):
        return {_name(name): _fields(field) for name, field in value.items()}
    if isinstance(value, list):
        forms = {json.dumps(_fields(each), sort_keys=True) for each in value}
        return sorted(forms)
    return type(value).__name__


def _columns(path: Path) -> str:
    """The columns of an Arrow file or stream, and the names in the schema's metadata."""
    data = path.read_bytes()
    is_file = data.startswith(b"ARROW1")
    schema = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(data).schema
    metadata = sorted(name.decode() for name in schema.metadata or {})
    version = (schema.metadata or {})[b"cowstate.format_version"].decode()
    assert version == "1"
    columns = schema.remove_metadata().to_string(show_field_metadata=True)
    return f"{metadata}\n{columns}"
