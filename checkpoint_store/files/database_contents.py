"""The object that describes a database in a store: encodes and decodes the description. Pure.

A database is the data that an engine like RocksDB keeps on a local disk: tables of sorted rows, and
some small files that list the tables. The tables are the parts of the database's handle; the
description holds the small files. Only the engine's own reader can tell the state of a row; the
description also holds the information that the reader needs. See document.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from checkpoint_store.files.document import (
    Body,
    Source,
    decode_document,
    decode_number,
    decode_text,
    encode_document,
)
from checkpoint_store.files.key_group_range import KeyGroupRange


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """A state in a database.

    `kind`, `schema_json`, `ttl_ms`: see StateSchema. `value_type`: the Arrow struct of the state's
    values. `families`: the column families that hold the state. `entries`: the number of entries in
    each key group.
    """

    name: str
    kind: str
    schema_json: str
    ttl_ms: int | None
    value_type: pa.StructType
    families: tuple[str, ...]
    entries: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class DatabaseContents:
    """The states and the files of a database.

    `engine`: the engine that reads the database. `rows_version`: the encoding of the rows.
    `key_groups`: the key groups that may have rows. `key_schema`: the grouping columns.
    `key_type_names`: Spark's JSON names of the grouping columns' types. `tables`: the local names
    of the handle's parts, in the handle's order. `small_files`: all other files by their local
    names.
    """

    engine: str
    rows_version: int
    key_groups: KeyGroupRange
    key_schema: pa.Schema
    key_type_names: tuple[str, ...]
    states: tuple[DatabaseState, ...]
    tables: tuple[str, ...]
    small_files: Mapping[str, bytes]


def encode_database(contents: DatabaseContents) -> bytes:
    """Encode the description of a database."""
    body = {
        "engine": contents.engine,
        "rows_version": contents.rows_version,
        "key_groups": [contents.key_groups.start, contents.key_groups.end],
        "key_schema": _encode_schema(contents.key_schema),
        "key_type_names": list(contents.key_type_names),
        "states": [_state_body(state) for state in contents.states],
        "tables": list(contents.tables),
        "small_files": {name: _encode(data) for name, data in contents.small_files.items()},
    }
    return encode_document("database", body)


def decode_database(data: bytes, source: Source) -> DatabaseContents:
    """Decode the description of a database. Raises CorruptObjectError, UnsupportedFormatError."""

    def build(body: Body) -> DatabaseContents:
        return DatabaseContents(
            engine=decode_text(body["engine"]),
            rows_version=decode_number(body["rows_version"]),
            key_groups=KeyGroupRange(*map(decode_number, body["key_groups"])),
            key_schema=_decode_schema(body["key_schema"]),
            key_type_names=tuple(map(decode_text, body["key_type_names"])),
            states=tuple(map(_state, body["states"])),
            tables=tuple(map(_plain_name, body["tables"])),
            small_files={
                _plain_name(name): _decode(text) for name, text in body["small_files"].items()
            },
        )

    return decode_document("database", data, source, build)


def _state_body(state: DatabaseState) -> Body:
    return {
        "name": state.name,
        "kind": state.kind,
        "schema_json": state.schema_json,
        "ttl_ms": state.ttl_ms,
        "value_schema": _encode_schema(pa.schema(list(state.value_type))),
        "families": list(state.families),
        "entries": [list(of_key_group) for of_key_group in sorted(state.entries.items())],
    }


def _state(body: Body) -> DatabaseState:
    ttl_ms = body["ttl_ms"]
    return DatabaseState(
        name=decode_text(body["name"]),
        kind=decode_text(body["kind"]),
        schema_json=decode_text(body["schema_json"]),
        ttl_ms=None if ttl_ms is None else decode_number(ttl_ms),
        value_type=pa.struct(list(_decode_schema(body["value_schema"]))),
        families=tuple(map(decode_text, body["families"])),
        entries={
            decode_number(key_group): decode_number(count) for key_group, count in body["entries"]
        },
    )


def _plain_name(name: object) -> str:
    """Return a file's name without directories. Raises ValueError."""
    text = decode_text(name)
    if text in ("", ".", "..") or "/" in text or "\\" in text:
        raise ValueError(f"{text!r} is not the name of a file")
    return text


def _encode_schema(schema: pa.Schema) -> str:
    return _encode(schema.serialize().to_pybytes())


def _decode_schema(text: object) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(_decode(text)))


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode(text: object) -> bytes:
    return base64.b64decode(decode_text(text), validate=True)
