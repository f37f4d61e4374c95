"""One epoch of one subtask: the processor over its keyed input.

Every run gets a processor of its own, unpickled anew, as every Spark task does; what lives longer
is its state. Exceptions of the processor pass through unchanged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import TimerValues

from spark_state.errors import OutputRowError
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.keyed_state_backend import KeyedStateBackend
from spark_state.processor.handles import serving_handle
from spark_state.processor.key_grouping import InputLayout, KeyedInput, group_by_key
from spark_state.processor.output_rows import OutputEncoder, OutputSpool
from spark_state.processor.rows import row_type, rows_of
from spark_state.state_descriptor import StateDescriptor

_ROWS_PER_BATCH = 8_192
_KEYS_PER_CHECK = 256


@dataclass(frozen=True, slots=True)
class ProcessorSpec:
    """All that a subtask needs to run a processor.

    `pickled_processor`: cloudpickle bytes; `output_schema`: Arrow; `spool_bytes`: output held in
    memory at most before it goes to a temporary file.
    """

    pickled_processor: bytes
    layout: InputLayout
    key_columns: KeyColumns
    states: tuple[StateDescriptor, ...]
    output_schema: pa.Schema
    spool_bytes: int


def run_processor(
    spec: ProcessorSpec,
    processor: Any,
    backend: KeyedStateBackend[Any],
    table: pa.Table,
    check: Callable[[], None],
) -> OutputSpool:
    """Run `processor` over the rows of `table` and return its output, not yet sent.

    `check` is called every few hundred keys; it raises to give up. The caller seals or rolls back
    the backend, and closes the spool.
    """
    states = {descriptor.name: backend.state(descriptor) for descriptor in spec.states}
    keyed = group_by_key(table, spec.layout, spec.key_columns)
    spool = OutputSpool(spec.output_schema, spec.spool_bytes)
    try:
        processor.init(serving_handle(states))
        encoder = OutputEncoder(spec.output_schema)
        output = _handle_keys(processor, backend, keyed, spec.layout.row_names, check)
        while rows := list(islice(output, _ROWS_PER_BATCH)):
            spool.append(encoder.encode(rows))
        processor.close()
    except BaseException:
        spool.close()
        raise
    return spool


def _handle_keys(
    processor: Any,
    backend: KeyedStateBackend[Any],
    keyed: KeyedInput,
    row_names: tuple[str, ...],
    check: Callable[[], None],
) -> Iterator[Any]:
    handle_input_rows = processor.handleInputRows
    set_current_key = backend.set_current_key
    timer_values = TimerValues()
    all_rows = rows_of(keyed.rows, row_type(row_names))
    keys = zip(keyed.keys, keyed.key_groups, keyed.counts, strict=True)
    for number, (key, key_group, count) in enumerate(keys):
        if not number % _KEYS_PER_CHECK:
            check()
        set_current_key(key, key_group)
        rows = islice(all_rows, count)
        output = handle_input_rows(key, rows, timer_values)
        if output is None:
            raise OutputRowError(
                f"{type(processor).__name__}.handleInputRows returned None for key {key!r}; "
                "return an iterator of Rows, iter([]) for none"
            )
        yield from output
        deque(rows, maxlen=0)
