"""Encodes and decodes the description of a database, an object in a store. Pure.

A database is the data that an engine like RocksDB keeps on a local disk: tables of sorted rows, and
some small files that list the tables. In the store each table is an object of its own, a part of
the database's StateHandle. The small files are in the description. Only the engine's own reader can
decode the rows, so the description also has the states and types that the engine's reader needs.
The docstring of the module `document` shows the envelope of the description.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from checkpoint_store.files.document import Source, decode_document, encode_document
from checkpoint_store.files.document_body import Body, decode_body
from checkpoint_store.files.key_group_range import KeyGroupRange


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """A state in a database.

    `kind`, `schema_json`: kind and schema of the registered state. `ttl_ms`: lifetime of a value in
    milliseconds, None if values do not expire. `value_schema`: the fields of the state's values.
    `families`: the column families that hold the state. `entries`: key groups, ascending, each with
    its number of entries.
    """

    name: str
    kind: str
    schema_json: str
    ttl_ms: int | None
    value_schema: pa.Schema
    families: tuple[str, ...]
    entries: tuple[tuple[int, int], ...]

    @property
    def value_type(self) -> pa.StructType:
        """The Arrow struct of the state's values."""
        return pa.struct(list(self.value_schema))


@dataclass(frozen=True, slots=True)
class DatabaseContents:
    """The states and the files of a database.

    `engine`: the engine that reads the database. `rows_version`: the encoding of the rows.
    `key_groups`: the key groups that may have rows. `key_schema`: the grouping columns.
    `key_type_names`: Spark's JSON names of the grouping columns' types. `tables`: the local names
    of the handle's parts, in the handle's order. `small_files`: the contents of all other files, by
    their local names.
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
    return encode_document("database", contents)


def decode_database(data: bytes, source: Source) -> DatabaseContents:
    """Decode the description of a database. Raises CorruptObjectError, UnsupportedFormatError."""

    def build(body: Body) -> DatabaseContents:
        contents = decode_body(DatabaseContents, body)
        for name in (*contents.tables, *contents.small_files):
            if name in ("", ".", "..") or "/" in name or "\\" in name:
                raise ValueError(f"{name!r} is not the name of a file")
        return contents

    return decode_document("database", data, source, build)
