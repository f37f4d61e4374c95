"""`format("cowstate")`: states and tables as what Spark reads and writes.

Spark finds the format by itself where cowstate is installed (module `pyspark_cowstate`); on a
session that was started before that, `spark.dataSource.register(CowStateDataSource)`.

    spark.read         TableReader        table_source
    spark.readStream   TableStreamReader  table_stream
    df.write           TableBatchWriter   table_sink
    df.writeStream     TableStreamWriter  table_sink
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructField, StructType

from checkpoint_store.errors import NotAStoreError, UnknownColumnError, VersionNotRetainedError
from checkpoint_store.row_fold import CHANGE_TYPE, COMMIT_WATERMARK
from checkpoint_store.table_schema import without_nullability
from datasources.asked_columns import asked_columns
from datasources.change_columns import with_change_fields
from datasources.collection_types import FlattenedColumns
from datasources.event_time_columns import event_time_columns
from datasources.table_options import (
    ReaderOptions,
    StreamOptions,
    are_of_a_stream,
    column_named,
    parse_reader_options,
    parse_sink_options,
    parse_stream_options,
)
from datasources.table_sink import SinkPlan, TableBatchWriter, TableStreamWriter
from datasources.table_source import plan_of, reader_of
from datasources.table_stream import TableStreamReader
from datasources.version_choice import end_version, history_of, newest_version
from spark_state.errors import ConfigurationError


class CowStateDataSource(DataSource):
    """The data source that Spark makes for each read and write; see the module."""

    @classmethod
    def name(cls) -> str:
        """cowstate"""
        return "cowstate"

    def schema(self) -> StructType:
        """The columns of the state, in order; with readChangeFeed, those of changes after them.

        Spark does not say whether it asks for a batch or for a stream, so options of both are taken
        here; `reader` and `streamReader` check them.
        """
        options = _options_of_either(self.options)
        schema = _schema_of(options)
        return with_change_fields(schema) if options.read_change_feed else schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises ConfigurationError, and the errors of the store."""
        options = parse_reader_options(self.options)
        return reader_of(plan_of(options, asked_columns(options.url, schema)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Raises ConfigurationError."""
        options = parse_stream_options(self.options)
        if CHANGE_TYPE not in schema.names:
            raise ConfigurationError(
                f"a stream of {options.url} has inserts, updates and deletes, and the column "
                f'{CHANGE_TYPE} that tells them apart is not read: set option("readChangeFeed", '
                '"true"), and keep the column in a schema of your own'
            )
        _check_columns(options, schema)
        return TableStreamReader(options, asked_columns(options.url, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Raises ConfigurationError."""
        plan = self._sink_plan(schema)
        if overwrite:
            raise ConfigurationError(
                f'mode("overwrite") is not for {plan.options.url}: rows replace those of the same '
                'key; use mode("append"), and deleteWhen to remove rows'
            )
        return TableBatchWriter(plan)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Output mode "complete" upserts all rows of each batch. Raises ConfigurationError."""
        return TableStreamWriter(self._sink_plan(schema))

    def _sink_plan(self, schema: StructType) -> SinkPlan:
        return SinkPlan(
            parse_sink_options(self.options),
            without_nullability(schema.json()),
            event_time_columns(schema),
        )


def _check_columns(options: StreamOptions, schema: StructType) -> None:
    """Raises UnknownColumnError for one that the state does not have, if there is a state yet."""
    try:
        known = [*with_change_fields(_schema_of(options)).names, COMMIT_WATERMARK]
    except (NotAStoreError, VersionNotRetainedError):
        return
    for name in schema.names:
        if name not in known:
            raise UnknownColumnError(options.url, name, tuple(known))


def _options_of_either(options: Mapping[str, str]) -> ReaderOptions | StreamOptions:
    """Raises ConfigurationError: what a stream says, if only a stream knows all of the options."""
    try:
        return parse_reader_options(options)
    except ConfigurationError as error:
        try:
            return parse_stream_options(options)
        except ConfigurationError as of_stream:
            raise (of_stream if are_of_a_stream(options) else error) from None


def _schema_of(options: ReaderOptions | StreamOptions) -> StructType:
    """The columns that are read of a state. Its schema is that of the version that is read, of
    the newest one for a stream."""
    history = history_of(options)
    if isinstance(options, ReaderOptions):
        version = end_version(history, options)
    else:
        version = newest_version(history)
    shape = history.at(version).shape
    keys = StructType.fromJson(json.loads(shape.key_schema_json))
    values = StructType.fromJson(json.loads(shape.value_schema_json))
    own_names = [name for name in shape.columns if name not in keys.names]
    fields = {field.name: field for field in keys}
    for name, field in zip(own_names, values, strict=True):
        fields[name] = StructField(name, field.dataType)
    schema = StructType([fields[name] for name in shape.columns])
    if isinstance(options, ReaderOptions) and options.flatten_collection_types:
        schema = FlattenedColumns.of(shape, options.url).schema(schema)
    if isinstance(options, ReaderOptions) and options.columns:
        where = f"option columns of {options.url} names"
        return StructType(
            [schema[column_named(name, schema.names, where)] for name in options.columns]
        )
    return schema
