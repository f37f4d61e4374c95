"""The task side of the operator: the function that `mapInArrow` calls once for each partition.

The function finds its epoch and subtask, and sends the partition to the state host. Spark numbers
the partitions of a stage, and a union or a coalesce right after the operator changes the numbers.
Rows carry their key group, so the function notices a wrong number before anything is durable.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark import TaskContext

from checkpoint_store.files.key_group_range import (
    key_group_range_of_subtask,
    subtask_of_key_group,
)
from spark_state.errors import BatchIdentityError, ConfigurationError
from spark_state.executor import executor_of_worker
from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from spark_state.host.client import run_epoch
from spark_state.host.launcher import connect
from spark_state.operator_state.operator_state_backend import OperatorStateBackend
from spark_state.processor.input.epoch_inputs import subtask_of_control
from spark_state.processor.input.epoch_time import NO_WATERMARK, EpochTime
from spark_state.processor.processor_run import Backends, ProcessorSpec, run_processor
from spark_state.processor.rows import STATE_FORMS
from spark_state.spark.queries.ended_runs import ended_runs
from spark_state.spark.queries.operator_starts import named_start
from spark_state.spark.session.batch_identity import (
    EPOCH,
    QUERY,
    batch_identity,
)
from spark_state.spark.session.planned_operators import function_name
from spark_state.spark.session.worker_loading import called_in_workers
from spark_state.subtasks.epoch_request import EpochRequest, EpochTask, HostSettings, OperatorSpec

MapFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def streaming_task(spec: OperatorSpec, hosts: HostSettings) -> MapFunction:
    """The function of a streaming operator: state lives in the host and in the store."""

    used = min(hosts.per_executor, spec.parallelism)
    hosts = replace(hosts, per_executor=used)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = _identify(TaskContext.get(), spec)
        module_path = tuple(entry for entry in sys.path if entry)
        request = EpochRequest(spec, task, module_path, _local_directories())
        checked = _check_partition(batches, spec, task.subtask)
        connection = connect(executor_of_worker(), task.subtask, hosts)
        yield from run_epoch(connection, request, checked)

    return _loaded_by_worker(run, function_name(spec))


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

    return _loaded_by_worker(run, run.__name__)


def _loaded_by_worker(function: MapFunction, name: str) -> MapFunction:
    called = called_in_workers(function)
    called.__name__ = name
    return called


def _local_directories() -> tuple[str, ...]:
    """The directories for this executor's local files, from Spark's variable SPARK_LOCAL_DIRS."""
    return tuple(filter(None, os.environ.get("SPARK_LOCAL_DIRS", "").split(",")))


def _identify(context: TaskContext | None, spec: OperatorSpec) -> EpochTask:
    batch = None if context is None else batch_identity(context)
    if context is None or batch is None:
        raise BatchIdentityError(
            f"operator {spec.operator!r} runs outside of its query's thread: {EPOCH} or {QUERY} is "
            "not set, so the epoch is unknown. Inside foreachBatch, run actions in the function "
            "itself, or start threads with pyspark.InheritableThread"
        )
    subtask = context.partitionId()
    if subtask >= spec.parallelism:
        raise _renumbered(spec, subtask, f"there are {spec.parallelism} subtasks")
    return EpochTask(
        query_id=batch.query_id,
        run_id=batch.run_id,
        epoch=batch.epoch,
        subtask=subtask,
        attempt=context.taskAttemptId(),
        ended_runs=ended_runs(context),
        start=named_start(context, batch.query_id, spec.operator),
    )


def _check_partition(
    batches: Iterator[pa.RecordBatch], spec: OperatorSpec, subtask: int
) -> Iterator[pa.RecordBatch]:
    key_group_index = spec.processor.run_plan.inputs.layout.key_group_index
    for batch in batches:
        if batch.num_rows:
            key_group = batch.column(key_group_index)[0].as_py()
            owner = subtask_of_control(key_group)
            if owner is None:
                owner = subtask_of_key_group(key_group, spec.max_parallelism, spec.parallelism)
            if owner != subtask:
                raise _renumbered(spec, subtask, f"its rows belong to subtask {owner}")
        yield batch


def _renumbered(spec: OperatorSpec, partition: int, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"operator {spec.operator!r} was run as partition {partition}, but {why}: a union, "
        "coalesce or join without shuffle comes right after it and renumbers its partitions; "
        "put repartition(n) between them"
    )
