"""The task side of the operator: the function that `mapInArrow` calls once for each partition.

The function finds its epoch and subtask, and sends the partition to the state host. Spark numbers
the partitions of a stage, and a union or a coalesce right after the operator changes the numbers.
Rows carry their key group, so the function notices a wrong number before anything is durable.

Each Python worker imports this module, so the module imports little, see epoch_request.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial

import pyarrow as pa
from pyspark import TaskContext

from checkpoint_store.files.key_group_range import subtask_of_key_group
from spark_state.errors import BatchIdentityError, ConfigurationError
from spark_state.executor import executor_of_worker
from spark_state.host.client import run_epoch
from spark_state.host.launcher import connect
from spark_state.processor.input.control_rows import subtask_of_control
from spark_state.spark.queries.ended_runs import ended_runs
from spark_state.spark.queries.named_starts import named_start
from spark_state.spark.session.batch_identity import EPOCH, QUERY, batch_identity
from spark_state.spark.session.worker_loading import called_in_workers
from spark_state.subtasks.epoch_request import EpochTask, OperatorSpec, SentOperator, SentRequest

_executor = cache(executor_of_worker)
"""The executor of this worker. A worker never changes its executor."""

MapFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def streaming_task(spec: OperatorSpec) -> MapFunction:
    """The function of a streaming operator: state lives in the host and in the store."""
    return called_in_workers(partial(_run_subtask, SentOperator.of(spec)))


def _run_subtask(
    operator: SentOperator, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    task = _identify(TaskContext.get(), operator)
    module_path = tuple(entry for entry in sys.path if entry)
    request = SentRequest(operator, task, module_path, _local_directories())
    checked = _check_partition(batches, operator, task.subtask)
    connection = connect(_executor(), task.subtask, operator.hosts)
    yield from run_epoch(connection, request, checked)
    _freeze_imported()


@cache
def _freeze_imported() -> None:
    """Freeze all objects, above all those of imported modules, once in a worker. Spark's worker
    collects garbage after each task. A collection visits all objects that are not frozen, and the
    next task waits for the collection: without this call for 8 ms, longer than for a small
    epoch."""
    gc.collect()
    gc.freeze()


def _local_directories() -> tuple[str, ...]:
    """The directories for this executor's local files, from Spark's variable SPARK_LOCAL_DIRS."""
    return tuple(filter(None, os.environ.get("SPARK_LOCAL_DIRS", "").split(",")))


def _identify(context: TaskContext | None, operator: SentOperator) -> EpochTask:
    batch = None if context is None else batch_identity(context)
    if context is None or batch is None:
        raise BatchIdentityError(
            f"operator {operator.name!r} runs outside of its query's thread: {EPOCH} or {QUERY} is "
            "not set, so the epoch is unknown. Inside foreachBatch, run actions in the function "
            "itself, or start threads with pyspark.InheritableThread"
        )
    subtask = context.partitionId()
    if subtask >= operator.parallelism:
        raise _renumbered(operator, subtask, f"there are {operator.parallelism} subtasks")
    return EpochTask(
        query_id=batch.query_id,
        run_id=batch.run_id,
        epoch=batch.epoch,
        subtask=subtask,
        attempt=context.taskAttemptId(),
        ended_runs=ended_runs(context),
        start=named_start(context, batch.query_id, operator.name),
    )


def _check_partition(
    batches: Iterator[pa.RecordBatch], operator: SentOperator, subtask: int
) -> Iterator[pa.RecordBatch]:
    key_group_index = operator.key_group_index
    for batch in batches:
        if batch.num_rows:
            key_group = batch.column(key_group_index)[0].as_py()
            owner = subtask_of_control(key_group)
            if owner is None:
                owner = subtask_of_key_group(
                    key_group, operator.max_parallelism, operator.parallelism
                )
            if owner != subtask:
                raise _renumbered(operator, subtask, f"its rows belong to subtask {owner}")
        yield batch


def _renumbered(operator: SentOperator, partition: int, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"operator {operator.name!r} was run as partition {partition}, but {why}: a union, "
        "coalesce or join without shuffle comes right after it and renumbers its partitions; "
        "put repartition(n) between them"
    )
