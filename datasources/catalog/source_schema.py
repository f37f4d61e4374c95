"""Columns of `format("cowstate")`, before Spark selects columns."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from checkpoint_store.errors import NotAStoreError, UnknownColumnError, VersionNotRetainedError
from checkpoint_store.states.row_fold import COMMIT_WATERMARK
from datasources.catalog.change_columns import with_change_fields
from datasources.options.table_options import (
    ReaderOptions,
    StreamOptions,
    column_named,
    parse_read_options,
)
from datasources.options.version_choice import end_version, history_of, newest_version
from datasources.reads.collection_types import FlattenedColumns
from spark_state.processor.stored_schema import struct_from_json


def source_schema(options: Mapping[str, str]) -> StructType:
    """The columns of the state, in order; with readChangeFeed, followed by the columns of changes.
    Spark does not say whether the schema is for a batch or a stream, so this function accepts the
    options of both. Later `reader` and `streamReader` check the options."""
    return schema_and_version(options)[0]


def schema_and_version(options: Mapping[str, str]) -> tuple[StructType, int]:
    """The columns as in `source_schema`, and the version that has the columns."""
    parsed = parse_read_options(options)
    schema, version = _schema_of(parsed)
    return (with_change_fields(schema) if parsed.read_change_feed else schema), version


def check_columns(options: StreamOptions, schema: StructType) -> None:
    """Check that the state has every column of `schema`. Raises UnknownColumnError. A state that
    does not exist yet passes the check."""
    try:
        schema, _ = _schema_of(options)
        readable = [*with_change_fields(schema).names, COMMIT_WATERMARK]
    except (NotAStoreError, VersionNotRetainedError):
        return
    for name in schema.names:
        if name not in readable:
            raise UnknownColumnError(options.url, name, tuple(readable))


def _schema_of(options: ReaderOptions | StreamOptions) -> tuple[StructType, int]:
    """The columns of a state in the version to read, and the version; for a stream, the newest
    version."""
    history = history_of(options)
    if isinstance(options, ReaderOptions):
        version = end_version(history, options)
    else:
        version = newest_version(history)
    shape = history.at(version).shape
    keys = struct_from_json(shape.key_schema_json)
    values = struct_from_json(shape.value_schema_json)
    own_names = [name for name in shape.columns if name not in keys.names]
    fields = {field.name: field for field in keys}
    for name, field in zip(own_names, values, strict=True):
        fields[name] = StructField(name, field.dataType)
    schema = StructType([fields[name] for name in shape.columns])
    if isinstance(options, ReaderOptions) and options.flatten_collection_types:
        schema = FlattenedColumns.of(shape, options.url).schema(schema)
    if isinstance(options, ReaderOptions) and options.columns:
        where = f"option columns of {options.url} names"
        schema = StructType(
            [schema[column_named(name, schema.names, where)] for name in options.columns]
        )
    return schema, version
