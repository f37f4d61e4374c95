"""Rows as pyarrow Tables, for the input and output of an ArrowStatefulProcessor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_state.errors import OutputRowError, StateValueError
from spark_state.processor.arrow.columns import struct_of
from spark_state.processor.input.key_grouping import KeyedInput

_ROWS_PER_BATCH = 65_536


@dataclass(frozen=True, slots=True)
class ArrowTables:
    """`pyarrow.Table`s, for input and output. See RowForm."""

    output_name = "pyarrow Tables"

    def rows_by_key(self, keyed: KeyedInput, names: tuple[str, ...]) -> Iterator[Iterator[Any]]:
        """Yield an iterator over the rows of each key, see RowForm. The Arrow steps call this
        method for the rows of broadcast streams only."""
        first = 0
        for count in keyed.counts:
            yield iter((keyed.rows.slice(first, count).rename_columns(list(names)),))
            first += count

    def output_of_key(self, key: tuple[Any, ...], output: Iterator[Any]) -> Iterator[Any]:
        return output

    def batches(self, output: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        struct_type = pa.struct(list(schema))
        for emitted in output:
            if not isinstance(emitted, pa.Table | pa.RecordBatch):
                raise OutputRowError(
                    "a processor of Arrow yields pyarrow Tables or RecordBatches, got a "
                    f"{type(emitted).__name__}; if it returns a table, let it yield the table"
                )
            try:
                structs = struct_of(emitted, struct_type, "output")
            except StateValueError as error:
                raise OutputRowError(str(error)) from error
            arrays = structs.flatten()
            for first in range(0, len(structs), _ROWS_PER_BATCH):
                part = [array.slice(first, _ROWS_PER_BATCH) for array in arrays]
                yield pa.RecordBatch.from_arrays(part, schema=schema)
