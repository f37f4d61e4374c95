"""The columns that Spark asks a reader for, with their order and nullability.

Every column of a state may be null, but a user's own schema may say NOT NULL. Spark compares our
batches with the user's schema, including nullability, and then trusts the schema: Spark would read
a null in a NOT NULL column as a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from checkpoint_store.files.spark_schema import parse_spark_schema
from spark_state.errors import ConfigurationError, UnsupportedOperationError

_BATCH_ROWS = 65_536
# pyarrow's type stubs reject arguments that its compute functions accept, such as any array.
pc: Any = pyarrow.compute


@dataclass(frozen=True, slots=True)
class AskedColumns:
    """Columns of a read. `asked`: the columns with which Spark compares batches. `stored`: the same
    columns as in states, where every field may be null. `url`: the URL of the state, for the
    error."""

    url: str
    asked: pa.Schema
    stored: pa.Schema

    @property
    def names(self) -> list[str]:
        return list(self.asked.names)

    def of(self, rows: pa.Table) -> pa.Table:
        """Select the asked columns of `rows`. No column may be missing. A column of another type
        stays unchanged: Spark refuses the column, and shows both types. Raises ConfigurationError
        for a null in a NOT NULL column."""
        columns: list[Any] = []
        for asked, stored in zip(self.asked, self.stored, strict=True):
            column: Any = rows[asked.name]
            if column.type == stored.type:
                column = self._not_null(column, asked)
            columns.append(column)
        fields = [
            asked.with_type(column.type) for asked, column in zip(self.asked, columns, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def of_some(self, rows: pa.Table) -> pa.Table:
        """Select the asked columns of `rows`. Missing columns are filled with nulls."""
        for column in self.stored:
            if column.name not in rows.column_names:
                rows = rows.append_column(column, pa.nulls(rows.num_rows, column.type))
        return self.of(rows)

    def _not_null(self, column: Any, asked: pa.Field[Any]) -> Any:
        if not asked.nullable and column.null_count:
            raise self._null_in(asked.name)
        if column.type == asked.type:
            return column
        if any(_breaks(chunk, asked) for chunk in column.chunks):
            raise self._null_in(asked.name)
        return pa.chunked_array(
            [_of_type(chunk, asked.type) for chunk in column.chunks], asked.type
        )

    def _null_in(self, name: str) -> ConfigurationError:
        return ConfigurationError(
            f"column {name!r} of {self.url} has a null, but the schema that you set does not "
            "allow one: leave out its NOT NULL (nullable=False, containsNull=False)"
        )


def batches_of(rows: pa.Table) -> list[pa.RecordBatch]:
    """Cut the rows into batches. Spark holds a whole batch in memory, and reads a batch while we
    send the next batch."""
    return rows.to_batches(max_chunksize=_BATCH_ROWS)


def asked_columns(url: str, schema: StructType) -> AskedColumns:
    """The columns of the schema that Spark hands to a reader. Raises UnsupportedOperationError for
    a type that PySpark does not take from a Python source."""
    stored: Any = parse_spark_schema(schema.json()).arrow
    asked: list[pa.Field[Any]] = []
    for field in schema:
        try:
            asked += to_arrow_schema(StructType([field]), timezone="UTC")
        except PySparkTypeError as error:
            raise UnsupportedOperationError(
                f"column {field.name!r} of {url} has type {field.dataType.simpleString()}, which "
                "PySpark does not read from a source in Python. Name the other columns in option "
                "columns, or read the state without Spark, with checkpoint_store.open_store"
            ) from error
    return AskedColumns(url, pa.schema(asked), pa.schema(list(stored)))


def _of_type(array: Any, asked: pa.DataType) -> Any:
    """Give the array the type `asked`, which differs from the array's type only in nullability.
    `cast` does not work here: if a struct is null, `cast` refuses nulls in its NOT NULL fields."""
    batch = pa.RecordBatch.from_arrays([array], ["column"])
    schema = pa.schema([pa.field("column", asked)])
    return pa.ipc.read_record_batch(batch.serialize(), schema).column(0)


def _breaks(array: Any, field: pa.Field[Any]) -> bool:
    """True if the array has a null that the field does not allow, at any depth."""
    if not field.nullable and array.null_count:
        return True
    # `take` drops children outside a slice or under a null value.
    data_type, present = field.type, array.take(pc.indices_nonzero(array.is_valid()))
    if pa.types.is_struct(data_type):
        children = zip(present.flatten(), data_type, strict=True)
    elif pa.types.is_map(data_type):
        children = zip([present.items], [data_type.item_field], strict=True)
    elif pa.types.is_list(data_type):
        children = zip([present.flatten()], [data_type.value_field], strict=True)
    else:
        return False
    return any(_breaks(child, inner) for child, inner in children)
