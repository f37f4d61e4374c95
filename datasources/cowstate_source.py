"""`format("cowstate")`: Spark's data source for states and tables.

Where cowstate is installed, Spark finds the format itself, by module `pyspark_cowstate`. In a
session that was started before the installation, call
`spark.dataSource.register(CowStateDataSource)`.

    schema             source_schema; table_declaration, if the jar asks for a check of a table
    spark.read         table_source
    spark.readStream   table_stream
    df.write           table_sink
    df.writeStream     table_sink

For each use, Spark imports this module in a new Python process. So each method imports only the
modules that the method needs. Spark shows an error with its whole traceback. So an error that
cowstate raises on purpose leaves without the traceback: the message gives the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from checkpoint_store.errors import CowstateError
from checkpoint_store.interface_words import OPTIONS, in_words_of
from datasources.options.catalog_tables import is_declared

_T = TypeVar("_T")


def _told_shortly(method: Callable[..., _T]) -> Callable[..., _T]:
    @wraps(method)
    def told(self: DataSource, *arguments: Any, **named: Any) -> _T:
        try:
            with in_words_of(OPTIONS):
                return method(self, *arguments, **named)
        except CowstateError as error:
            raise error.with_traceback(None) from None

    return told


class CowStateDataSource(DataSource):
    """Data source object that Spark makes for each read and write; see the module.

    `schema` chooses the version of the state to read, and stores the version in this object. Spark
    then pickles the object, and plans each scan of a DataFrame with a copy. So all scans of a
    DataFrame read the same version. If the user gives the schema, Spark does not call `schema`, and
    each scan chooses its version.
    """

    _version: int | None = None

    @classmethod
    def name(cls) -> str:
        return "cowstate"

    @_told_shortly
    def schema(self) -> StructType:
        """The columns of a read. Raises ConfigurationError and the errors of the store."""
        if is_declared(self.options):
            from datasources.catalog.table_declaration import declared_schema

            return declared_schema(self.options)
        from datasources.catalog.source_schema import schema_and_version

        schema, self._version = schema_and_version(self.options)
        return schema

    @_told_shortly
    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch. Raises ConfigurationError and the errors of the store."""
        from datasources.reads.table_source import table_reader

        return table_reader(self.options, schema, self._version)

    @_told_shortly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The reader of a stream. If cowstate refuses the stream, this method raises no error: the
        reader raises the error when Spark asks for offsets or partitions."""
        from datasources.streams.table_stream import table_stream_reader

        return table_stream_reader(self.options, schema)

    @_told_shortly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The sink of a batch job. Raises ConfigurationError."""
        from datasources.sink.table_sink import table_batch_writer

        return table_batch_writer(self.options, schema, overwrite=overwrite)

    @_told_shortly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """The sink of a query; output mode "complete" upserts all rows of each batch. Raises
        ConfigurationError."""
        from datasources.sink.table_sink import table_stream_writer

        return table_stream_writer(self.options, schema)
