"""Form of rows: the objects that a processor gets for a key, and the objects in its output.

    SparkRows      pyspark.sql.Rows, in this module
    PandasFrames   pandas.DataFrames, in pandas_frames, imported only where used
    ArrowTables    pyarrow.Tables, in arrow.arrow_tables

The driver chooses the form in the plan of the operator. A form handles all keys of an epoch in one
iteration, so the run calls the form once and not for every key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import pyarrow as pa

from spark_state.processor.input.key_grouping import KeyedInput
from spark_state.processor.output_rows import OutputEncoder
from spark_state.processor.rows import row_type, rows_of

_FEW_ROWS = 128
_ROWS_PER_BATCH = 8_192
_ROWS_AT_ONCE = 512
"""Number of output rows taken from a processor at a time. The number is small, so that new rows
reuse memory of earlier rows that is still in the CPU's cache."""


class RowForm(Protocol):
    """Form of rows. Can be pickled. `output_name`: name of the output's elements, for errors."""

    @property
    def output_name(self) -> str: ...

    def rows_by_key(self, keyed: KeyedInput, names: tuple[str, ...]) -> Iterator[Iterator[Any]]:
        """Yield an iterator over the rows of each key, in the order of the keys. The processor may
        leave rows unread. `names`: the names that the processor sees for the columns of
        `keyed.rows`."""

    def output_of_key(self, key: tuple[Any, ...], output: Iterator[Any]) -> Iterator[Any]:
        """Return the processor's `output` for a key, in the form that `batches` takes."""

    def batches(self, output: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Convert the processor's output to record batches of `schema`. Raises OutputRowError."""


@dataclass(frozen=True, slots=True)
class SparkRows:
    """`pyspark.sql.Row`s, for input and output. See RowForm."""

    output_name = "Rows"

    def rows_by_key(self, keyed: KeyedInput, names: tuple[str, ...]) -> Iterator[Iterator[Any]]:
        all_rows = rows_of(keyed.rows, row_type(names))
        for count in keyed.counts:
            if count <= _FEW_ROWS:
                yield iter([*islice(all_rows, count)] if count > 1 else (next(all_rows),))
            else:
                rows = islice(all_rows, count)
                yield rows
                deque(rows, maxlen=0)

    def output_of_key(self, key: tuple[Any, ...], output: Iterator[Any]) -> Iterator[Any]:
        return output

    def batches(self, output: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        encoder = OutputEncoder(schema)
        while rows := list(islice(output, _ROWS_AT_ONCE)):
            encoder.add(rows)
            if encoder.rows >= _ROWS_PER_BATCH:
                yield encoder.batch()
        if encoder.rows:
            yield encoder.batch()
