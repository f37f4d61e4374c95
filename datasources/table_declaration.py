"""What the catalog is to say of a table, checked before the catalog keeps it.

Spark asks a format nothing about OPTIONS and columns of CREATE TABLE, so the jar asks here: with
the options of the table, and option `declaration`, JSON:

    {"columns": {"type": "struct", …}, "properties": ["owner", …], "warehouse": "file:/…",
     "mayLackKeys": true}

`columns`: all that the table is to have, none if it is there; null if only properties are asked
for. `properties`: the names in TBLPROPERTIES, which are not options. `warehouse`: where Spark will
put the table, under its name, if it has no option `path`.
`mayLackKeys`: whether a write may come with the declaration (`saveAsTable`, `toTable`) and name the
keys itself.
The answer is the schema of the source: the columns that the table has, or is to have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql.types import StructType

from checkpoint_store.tables.table_history import TableHistory
from datasources.catalog_tables import DECLARATION
from datasources.opened_tables import check_new_sink, check_sink
from datasources.source_schema import source_schema
from datasources.table_options import (
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
from datasources.version_choice import history_of, is_written
from spark_state.errors import ConfigurationError


def declared_schema(options: Mapping[str, str]) -> StructType:
    """The columns of a declared table.

    Raises ConfigurationError for options that no read and no write has, or whose values cannot be,
    and for keys that are missing or no columns; what a write raises where the place is taken or the
    table there has other options; the errors of the store.
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
            return _of_table_there(own, is_placed=is_placed)
        if written.keys or not declaration["mayLackKeys"]:
            (check_sink if is_placed else check_new_sink)(own, declared)
        return declared
    actual = source_schema(own)
    added = [field for field in declared if field.name not in actual.names]
    if isinstance(history_of(read), TableHistory) or written.keys or added:
        check_sink(own, StructType([*actual, *added]))
    return actual


def _parsed_read(options: Mapping[str, str]) -> ReaderOptions | StreamOptions:
    """The options of reads, of which a stream may say more than a batch read only of changes."""
    parse_stream_options(options)
    read = parse_read_options(options)
    return read if read.read_change_feed else parse_reader_options(options)


def _check_only_read(written: SinkOptions, *, is_placed: bool) -> None:
    """Raises ConfigurationError for a table of other columns than rows that is to be written."""
    if written.keys or not is_placed:
        raise ConfigurationError(
            "options readChangeFeed, columns and flattenCollectionTypes are of a table that is "
            "only read: leave keys out, and name a table that is there by LOCATION"
        )


def _of_table_there(options: Mapping[str, str], *, is_placed: bool) -> StructType:
    if not is_placed:
        raise ConfigurationError(
            "CREATE TABLE has neither columns nor LOCATION: say the columns of a new table, and "
            "its keys in OPTIONS, or the LOCATION of one that is there"
        )
    return source_schema(options)


def _refuse_options_among(properties: Sequence[str]) -> None:
    for name in properties:
        if is_an_option(name):
            raise ConfigurationError(
                f"TBLPROPERTIES has {name}, which is an option: set it in OPTIONS of CREATE TABLE"
            )
