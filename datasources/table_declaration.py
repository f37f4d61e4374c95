"""What the catalog is to say of a table, checked before the catalog keeps it.

Spark asks a format nothing about OPTIONS and columns of CREATE TABLE, so the jar asks here: with
the options of the table, and option `declaration`, JSON:

    {"columns": {"type": "struct", …}, "properties": ["owner", …], "warehouse": "file:/…",
     "mayLackKeys": true}

`columns`: all that the table is to have; null if only properties are asked for. `properties`: the
names in TBLPROPERTIES, which are not options. `warehouse`: where Spark will put the table, under its name, if it has no option `path`.
`mayLackKeys`: whether a write may come with the declaration (`saveAsTable`, `toTable`) and name the
keys itself.
The answer is the schema of the source: the columns that the table has, or is to have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql.types import StructType

from checkpoint_store.table_history import TableHistory
from datasources.catalog_tables import DECLARATION
from datasources.opened_tables import check_new_sink, check_sink
from datasources.source_schema import reads_other_columns, source_schema
from datasources.table_options import (
    is_an_option,
    parse_read_options,
    parse_sink_options,
    parse_stream_options,
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
    is_placed = "path" in (name.lower() for name in own)
    if not is_placed:
        own["path"] = declaration["warehouse"]
    _refuse_options_among(declaration["properties"])
    if declaration["columns"] is None:
        return StructType()
    declared = StructType.fromJson(declaration["columns"])
    written, read = parse_sink_options(own), parse_read_options(own)
    parse_stream_options(own)
    if not is_placed or not is_written(read):
        if written.keys or not declaration["mayLackKeys"]:
            (check_sink if is_placed else check_new_sink)(own, declared)
        return declared
    actual = source_schema(own)
    may_be_written = isinstance(history_of(read), TableHistory) or written.keys
    if may_be_written and not reads_other_columns(read):
        added = [field for field in declared if field.name not in actual.names]
        check_sink(own, StructType([*actual, *added]))
    return actual


def _refuse_options_among(properties: Sequence[str]) -> None:
    for name in properties:
        if is_an_option(name):
            raise ConfigurationError(
                f"TBLPROPERTIES has {name}, which is an option: set it in OPTIONS of CREATE TABLE"
            )
