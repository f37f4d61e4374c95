"""The form of rows: what a processor is given for a key, and what its output is made of.

    SparkRows      pyspark.sql.Rows, here
    PandasFrames   pandas.DataFrames, in pandas_frames, which is imported only where it is used

The driver chooses the form when it plans the operator. A form goes over all keys of an epoch at
once, so the run asks for it once, and not for every key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import pyarrow as pa

from spark_state.processor.key_grouping import KeyedInput
from spark_state.processor.output_rows import OutputEncoder
from spark_state.processor.rows import row_type, rows_of

_FEW_ROWS = 128
_ROWS_PER_BATCH = 8_192
_ROWS_AT_ONCE = 512
"""So few that new rows get the memory of those before, which the processor's cache still has."""


class RowForm(Protocol):
    """Pickles. `output_name`: what an output consists of, for errors."""

    @property
    def output_name(self) -> str: ...

    def rows_by_key(self, keyed: KeyedInput, names: tuple[str, ...]) -> Iterator[Iterator[Any]]:
        """For each key in order, what the processor gets as its rows; it may leave some unread.
        `names`: what the columns of `keyed.rows` are called there."""

    def output_of_key(self, key: tuple[Any, ...], output: Iterator[Any]) -> Iterator[Any]:
        """`output` of the processor for a key, in the form that `batches` takes."""

    def batches(self, output: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """What the processor emitted, as record batches of `schema`. Raises OutputRowError."""


@dataclass(frozen=True, slots=True)
class SparkRows:
    """`pyspark.sql.Row`s, in and out."""

    output_name = "Rows"

    def rows_by_key(self, keyed: KeyedInput, names: tuple[str, ...]) -> Iterator[Iterator[Any]]:
        """See RowForm."""
        all_rows = rows_of(keyed.rows, row_type(names))
        for count in keyed.counts:
            if count <= _FEW_ROWS:
                yield iter([*islice(all_rows, count)] if count > 1 else (next(all_rows),))
            else:
                rows = islice(all_rows, count)
                yield rows
                deque(rows, maxlen=0)

    def output_of_key(self, key: tuple[Any, ...], output: Iterator[Any]) -> Iterator[Any]:
        """See RowForm."""
        return output

    def batches(self, output: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """See RowForm."""
        encoder = OutputEncoder(schema)
        while rows := list(islice(output, _ROWS_AT_ONCE)):
            encoder.add(rows)
            if encoder.rows >= _ROWS_PER_BATCH:
                yield encoder.batch()
        if encoder.rows:
            yield encoder.batch()
