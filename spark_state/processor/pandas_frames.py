"""Rows as pandas DataFrames, as in transformWithStateInPandas.

    rows of many keys -> blocks of whole keys, at most as many rows as a frame has
    block             -> one DataFrame, made when the processor first reads rows of the block
    key               -> a copy of the key's rows in the DataFrame, with an index from 0

A key with more rows than a block gets several DataFrames. Rows that the processor does not read
cost no DataFrame, and many small keys share the cost of one DataFrame.

Columns have the dtypes of Spark's own DataFrames: whole numbers int64 (float64 in a block with
nulls), fractions float64, timestamps naive in the session's time zone, intervals in nanoseconds, or
in microseconds from pandas 3. Whole numbers in structs, arrays and maps stay whole beside nulls.

Output DataFrames are collected, and converted together if the dtypes are the same: a conversion
costs as much for a small DataFrame as for a large DataFrame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql.pandas.types import (
    _create_converter_from_pandas,
    _create_converter_to_pandas,
    from_arrow_type,
)

from spark_state.errors import OutputRowError, UnsupportedOperationError
from spark_state.processor.blocks import BlockSize, blocks
from spark_state.processor.condition_errors import OutputColumnError, output_column_error
from spark_state.processor.input.key_grouping import KeyedInput

_ROWS_PER_BATCH = 8_192
# As in Spark's DataFrames. The cast refuses an interval beyond 292 years of nanoseconds.
_INTERVAL = pa.duration("ns" if pd.__version__.startswith("2.") else "us")
_CONVERSION_ERRORS = (pa.ArrowException, ArithmeticError, AttributeError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class PandasFrames:
    """`pandas.DataFrame`s, for input and output. See RowForm.

    - `time_zone`: the session's time zone.
    - `frame_size`: the greatest number of rows and of bytes in an input DataFrame.
    - `by_name`: True if output columns are matched by name; False if by position. Columns are also
      matched by position if no column label is a str.
    - `safe_casts`: True if a value that the column cannot hold exactly is an error.
    - `ints_to_decimals`: True if a decimal column accepts whole numbers.
    """

    time_zone: str
    frame_size: BlockSize
    by_name: bool = True
    safe_casts: bool = True
    ints_to_decimals: bool = False

    output_name = "DataFrames"

    def rows_by_key(self, keyed: KeyedInput, names: tuple[str, ...]) -> Iterator[Iterator[Any]]:
        limit = self.frame_size.rows_of(keyed.rows)
        for part in blocks(keyed, self.frame_size):
            if part.rows.num_rows > limit:
                yield self._chunks(part.rows, names, limit)
                continue
            frame = cache(partial(self._frame, part.rows, names))
            start = 0
            for count in part.counts:
                yield _rows_of_key(frame, start, count)
                start += count

    def _chunks(self, rows: pa.Table, names: tuple[str, ...], limit: int) -> Iterator[Any]:
        for start in range(0, rows.num_rows, limit):
            yield self._frame(rows.slice(start, limit), names)

    def _frame(self, rows: pa.Table, names: tuple[str, ...]) -> Any:
        series = {}
        for index, column in enumerate(rows.columns):
            try:
                series[index] = _to_series(column, self.time_zone)
            except pa.ArrowInvalid as error:
                raise UnsupportedOperationError(
                    f"column {names[index]!r} ({column.type}) holds a value that a DataFrame of "
                    f"pandas {pd.__version__} cannot have: {error}. Cast the column to string, or "
                    "handle it in the row API"
                ) from error
        frame = pd.DataFrame(series)
        frame.columns = pd.Index(names)
        return frame

    def output_of_key(self, key: tuple[Any, ...], output: Iterator[Any]) -> Iterator[Any]:
        return ((key, frame) for frame in output)

    def batches(self, output: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        converter = _OutputFrames(self, schema)
        for emitted in output:
            converter.add(*emitted)
            if converter.rows >= _ROWS_PER_BATCH:
                yield converter.batch()
        if converter.rows:
            yield converter.batch()


def _rows_of_key(frame: Callable[[], Any], start: int, count: int) -> Iterator[Any]:
    """Yield a key's rows as one DataFrame. The DataFrame is a copy, so no other key sees the
    processor's changes. `frame`: returns the DataFrame of the key's block. The key has `count` rows
    in the block, from row `start` on."""
    yield frame().iloc[start : start + count].reset_index(drop=True)


def _to_series(column: Any, time_zone: str) -> Any:
    kind = column.type
    if pa.types.is_integer(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_floating(kind):
        column = column.cast(pa.float64())
    elif pa.types.is_duration(kind):
        return column.cast(_INTERVAL).to_pandas(coerce_temporal_nanoseconds=False)
    nested = pa.types.is_nested(kind)
    series = column.to_pandas(
        date_as_object=True, coerce_temporal_nanoseconds=True, integer_object_nulls=nested
    )
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return series.dt.tz_convert(time_zone).dt.tz_localize(None)
    if not nested:
        return series
    convert = _create_converter_to_pandas(
        from_arrow_type(kind, prefer_timestamp_ntz=True),
        True,
        timezone=time_zone,
        struct_in_pandas="dict",
        integer_object_nulls=True,
    )
    return convert(series)


class _OutputFrames:
    """Output DataFrames before the conversion."""

    def __init__(self, form: PandasFrames, schema: pa.Schema) -> None:
        self._by_name = form.by_name
        self._schema = schema
        self._columns = [_OutputColumn(form, field) for field in schema]
        self._indexes: dict[tuple[Any, ...], list[int]] = {}
        self._pieces: list[list[_Piece]] = [[] for _ in schema]
        self.rows = 0

    def add(self, key: tuple[Any, ...], frame: Any) -> None:
        """Add a DataFrame. Raises OutputRowError if `frame` is no DataFrame with the output
        schema's columns."""
        if not isinstance(frame, pd.DataFrame):
            raise OutputColumnError(
                "Invalid return type. Please make sure that the UDF returns a pandas.DataFrame "
                "when the specified return type is StructType. A processor yields "
                f"pandas.DataFrames, got {frame!r} of type {type(frame).__name__} for key {key!r}"
            )
        if not len(frame):
            return
        columns = tuple(frame.columns)
        indexes = self._indexes.get(columns)
        if indexes is None:
            indexes = self._indexes[columns] = self._indexes_in(columns, key)
        for index, pieces in zip(indexes, self._pieces, strict=True):
            pieces.append(_Piece(key, _values(frame, index)))
        self.rows += len(frame)

    def batch(self) -> pa.RecordBatch:
        """Convert the added DataFrames. Raises OutputRowError naming column, dtype and key."""
        arrays = [
            column.to_arrow(pieces)
            for column, pieces in zip(self._columns, self._pieces, strict=True)
        ]
        self._pieces, self.rows = [[] for _ in self._schema], 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _indexes_in(self, columns: tuple[Any, ...], key: tuple[Any, ...]) -> list[int]:
        """Return for each column of the output schema its position in `columns`, the columns of a
        DataFrame. `key`: for errors, the key for which the DataFrame was emitted."""
        names = self._schema.names
        if self._by_name and any(isinstance(column, str) for column in columns):
            missing = [name for name in names if columns.count(name) != 1]
            if not missing:
                return [columns.index(name) for name in names]
        else:
            missing = names[len(columns) :]
        if missing:
            raise OutputRowError(
                f"an output DataFrame of key {key!r} has the columns {list(columns)}; these "
                f"columns of the output schema must be there, once: {', '.join(missing)}"
            )
        return list(range(len(names)))


class _Piece(NamedTuple):
    """Values of one column of a DataFrame that was emitted for a key."""

    key: tuple[Any, ...]
    values: Any


def _values(frame: Any, index: int) -> Any:
    """Copy a column, because the processor may change the DataFrame and emit the DataFrame again.
    Python objects in the column are not copied. The copy is a numpy array if possible: with
    thousands of Series, the garbage collector would take as long as the processor."""
    # Every public call of pandas makes a Series first, and takes several times as long.
    array = frame._get_column_array(index)
    if isinstance(array, np.ndarray) or not isinstance(array.dtype, np.dtype):
        return array.copy()
    return array.to_numpy(copy=True)


class _OutputColumn:
    """Converter for a column of the output."""

    def __init__(self, form: PandasFrames, field: pa.Field[Any]) -> None:
        self._field = field
        self._safe = form.safe_casts
        self._convert = _create_converter_from_pandas(
            from_arrow_type(field.type, prefer_timestamp_ntz=True),
            timezone=form.time_zone,
            error_on_duplicated_field_names=False,
            int_to_decimal_coercion_enabled=form.ints_to_decimals,
        )

    def to_arrow(self, pieces: list[_Piece]) -> pa.Array[Any]:
        """Convert the values of all pieces to one array."""
        arrays = []
        for dtype, same in groupby(pieces, key=lambda piece: piece.values.dtype):
            run = list(same)
            # Arrow infers one type from all Python objects of an array. So inference is off for
            # several DataFrames: a DataFrame must not change the type of another DataFrame.
            may_infer = len(run) == 1 or dtype.kind != "O"
            try:
                arrays.append(self._array(_joined([piece.values for piece in run]), may_infer))
            except _CONVERSION_ERRORS:
                arrays += [self._array_of_key(key, values) for key, values in run]
        return pa.concat_arrays(arrays) if len(arrays) > 1 else arrays[0]

    def _array_of_key(self, key: tuple[Any, ...], values: Any) -> pa.Array[Any]:
        try:
            return self._array(_joined([values]))
        except _CONVERSION_ERRORS as error:
            raise output_column_error(
                self._field, values.dtype, f"Output of key {key!r}: {error}", error
            ) from error

    def _array(self, series: Any, may_infer: bool = True) -> pa.Array[Any]:
        if isinstance(series.dtype, pd.CategoricalDtype):
            series = series.astype(series.dtype.categories.dtype)
        series = self._convert(series)
        mask = None if hasattr(series.array, "__arrow_array__") else series.isnull()
        try:
            return _one_array(
                pa.Array.from_pandas(series, mask=mask, type=self._field.type, safe=self._safe)
            )
        except pa.ArrowInvalid:
            if not may_infer:
                raise
            array = _one_array(pa.Array.from_pandas(series, mask=mask))
            return array.cast(self._field.type, safe=self._safe)


def _one_array(array: Any) -> pa.Array[Any]:
    """Return `array` as one array, its chunks joined. Arrow converts a Series whose values are in
    Arrow memory, such as text in pandas 3, to an array with chunks."""
    if isinstance(array, pa.ChunkedArray):
        return array.combine_chunks()
    whole: pa.Array[Any] = array
    return whole


def _joined(pieces: list[Any]) -> Any:
    """Join arrays of one dtype to one Series. The dtype stays, also `object`."""
    if isinstance(pieces[0], np.ndarray):
        return pd.Series(np.concatenate(pieces), dtype=pieces[0].dtype)
    return pd.concat([pd.Series(piece) for piece in pieces], ignore_index=True)
