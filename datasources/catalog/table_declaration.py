"""Checks the declaration of a table before Spark's catalog stores the table.

Spark does not ask a format about OPTIONS and columns of CREATE TABLE, so the jar asks this module.
The jar passes the options of the table, and option `declaration`, which is JSON:

    {"columns": {"type": "struct", …}, "properties": ["owner", …], "warehouse": "file:/…",
     "mayLackKeys": true}

    columns       all columns of a new table; empty for an existing table; null for a check of
                  the properties only
    properties    the names in TBLPROPERTIES; the name of an option is an error
    warehouse     Spark's place for a table of this name, used if option `path` is not set
    mayLackKeys   true if the declaration may come from a write (`saveAsTable`, `toTable`), whose
                  own options may name the keys

`declared_schema` returns the schema of the source: the columns that the table has or will have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql.types import StructType

from checkpoint_store.tables.table_history import TableHistory
from datasources.catalog.source_schema import source_schema
from datasources.options.catalog_tables import DECLARATION
from datasources.options.table_options import (
    ReaderOptions,
    SinkOptions,
    StreamOptions,
    is_an_option,
    parse_read_options,
    parse_reader_options,
    parse_sink_options,
    parse_stream_options,
    reads_other_columns,
)
from datasources.options.version_choice import history_of, is_written
from datasources.sink.opened_tables import check_new_sink, check_sink
from spark_state.errors import ConfigurationError


def declared_schema(options: Mapping[str, str]) -> StructType:
    """The columns of a declared table.

    Raises ConfigurationError for an option that neither reads nor writes have, for a bad value, and
    for a key that is missing or is not a column. Like a write, raises NotATableError if `path`
    holds something other than a table, and TableMismatchError if the table at `path` was created
    with other options. Also raises the errors of the store.
    """
    declaration = json.loads(options[DECLARATION])
    own = {name: text for name, text in options.items() if name.lower() != DECLARATION}
    _refuse_options_among(declaration["properties"])
    if declaration["columns"] is None:
        return StructType()
    declared = StructType.fromJson(declaration["columns"])
    is_placed = "path" in (name.lower() for name in own)
    if not is_placed:
        own["path"] = declaration["warehouse"]
    written, read = parse_sink_options(own), _parsed_read(own)
    if reads_other_columns(read):
        _check_only_read(written, is_placed=is_placed)
        return source_schema(own)
    if not is_placed or not is_written(read):
        if not declared.fields:
            return _schema_of_existing(own, is_placed=is_placed)
        if written.keys or not declaration["mayLackKeys"]:
            (check_sink if is_placed else check_new_sink)(own, declared)
        return declared
    actual = source_schema(own)
    added = [field for field in declared if field.name not in actual.names]
    if isinstance(history_of(read), TableHistory) or written.keys or added:
        check_sink(own, StructType([*actual, *added]))
    return actual


def _parsed_read(options: Mapping[str, str]) -> ReaderOptions | StreamOptions:
    """Parse the options as options of reads. If the table is for reading the change feed, options
    that only streams have are allowed. Otherwise every option must also be an option of batch
    reads."""
    parse_stream_options(options)
    read = parse_read_options(options)
    return read if read.read_change_feed else parse_reader_options(options)


def _check_only_read(written: SinkOptions, *, is_placed: bool) -> None:
    """Check the declaration of a table that can only be read, because its columns differ from the
    columns in the store, such as a change feed. Raises ConfigurationError if the declaration has
    keys, or if the declaration has no path."""
    if written.keys or not is_placed:
        raise ConfigurationError(
            "options readChangeFeed, columns and flattenCollectionTypes are for a table that is "
            "only read: leave keys out, and name an existing table by LOCATION"
        )


def _schema_of_existing(options: Mapping[str, str], *, is_placed: bool) -> StructType:
    if not is_placed:
        raise ConfigurationError(
            "CREATE TABLE has neither columns nor LOCATION: name the columns of a new table, and "
            "its keys in OPTIONS, or the LOCATION of an existing table"
        )
    return source_schema(options)


def _refuse_options_among(properties: Sequence[str]) -> None:
    for name in properties:
        if is_an_option(name):
            raise ConfigurationError(
                f"TBLPROPERTIES has {name}, which is an option: set it in OPTIONS of CREATE TABLE"
            )
