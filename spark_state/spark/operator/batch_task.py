"""The task side of an operator in a batch query: no state is kept, and no host takes part."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from checkpoint_store.files.key_group_range import key_group_range_of_subtask
from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from spark_state.operator_state.operator_state_backend import OperatorStateBackend
from spark_state.processor.input.epoch_time import NO_WATERMARK, EpochTime
from spark_state.processor.processor_run import Backends, ProcessorSpec, run_processor
from spark_state.processor.rows import STATE_FORMS
from spark_state.spark.operator.operator_task import MapFunction
from spark_state.spark.session.worker_loading import called_in_workers


def batch_task(spec: ProcessorSpec, max_parallelism: int) -> MapFunction:
    """The function of a batch operator: every key starts without state, and no state is kept."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        received = list(batches)
        if not received:
            return
        key_groups = key_group_range_of_subtask(max_parallelism, 1, 0)
        backends = Backends(
            HeapKeyedStateBackend(key_groups, spec.key_columns, STATE_FORMS),
            OperatorStateBackend(STATE_FORMS),
        )
        processor = spec.processor()
        table, inputs = pa.Table.from_batches(received), spec.run_plan.inputs
        batch_ms = inputs.batch_ms(table)
        time = None if batch_ms is None else EpochTime(batch_ms, NO_WATERMARK, NO_WATERMARK)
        by_name = inputs.by_name(table)
        with run_processor(spec, processor, backends, by_name, time, lambda: None) as spool:
            yield from spool.read()

    return called_in_workers(run)
