"""Looks at a query's checkpoint, and at the stores of its operators, before the query starts.

Spark's commit log says which batch comes next, and its offset log which epochs the operators must
have. A store that lacks one of them was put back from an older copy. A store that has epochs of
batches which the logs do not have belongs to a query that was taken back to an earlier batch. Both
are told to the tasks of the run, in a local property of the thread that starts the query, which the
thread of the query inherits.

A store is looked at before the logs are: an epoch that is in the store then was planned before, so
if the offset log does not have its batch afterwards, somebody has cut the log.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from pyspark import SparkContext, TaskContext
from pyspark.sql import SparkSession

from checkpoint_store.errors import CheckpointStoreError
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.operators.run_errors import EpochsLostError
from spark_state.host.epoch_request import OperatorStart
from spark_state.spark.operator.hadoop_files import HadoopFiles
from spark_state.spark.operator.offset_log import newest_epoch
from spark_state.spark.operator.operator_configuration import is_local_master
from spark_state.spark.operator.planned_operators import OperatorInputs
from spark_state.spark.operator.worker_loading import called_in_workers

_STARTS = "cowstate.starts"


def name_starts(
    spark: SparkSession, location: str | None, operators: Sequence[OperatorInputs]
) -> None:
    """Tell the tasks of a query that this thread starts how its operators start.

    `location`: of its checkpoint, None if Spark chooses one. Raises StoreOfOtherCheckpointError,
    EpochsLostError, and the errors of the stores.
    """
    context = spark.sparkContext
    if location is None:
        context.setLocalProperty(_STARTS, "")
        return
    files = HadoopFiles(spark, location)
    query_id = _query_id(files)
    reached = [-1] * len(operators)
    if query_id is not None:
        reached = _reached(context, files.url, query_id, operators)
    planned, committed = (max(files.numbers(log), default=-1) for log in ("offsets", "commits"))
    starts = {}
    for inputs, has_reached in zip(operators, reached, strict=True):
        newest = newest_epoch(
            lambda batch: files.text(f"offsets/{batch}"), committed, inputs.places, inputs.sources
        )
        if newest is not None and -1 < has_reached < newest:
            url = inputs.operator.store_url(str(query_id))
            raise EpochsLostError(url, newest, has_reached)
        goes_back = has_reached > min(planned, committed + 1)
        starts[inputs.operator.operator] = asdict(OperatorStart(files.url, newest, goes_back))
    context.setLocalProperty(_STARTS, json.dumps({"query": query_id, "operators": starts}))


def named_start(context: TaskContext, query_id: str, operator: str) -> OperatorStart | None:
    """What the driver told this task of the start of an operator; None if it told nothing."""
    text = context.getLocalProperty(_STARTS)
    told = json.loads(text) if text else None
    if told is None or told["query"] not in (None, query_id):
        return None  # of the query in whose foreachBatch this one was started
    start = told["operators"].get(operator)
    return None if start is None else OperatorStart(**start)


def _query_id(files: HadoopFiles) -> str | None:
    text = files.text("metadata")
    return None if text is None else str(json.loads(text)["id"])


def _reached(
    context: SparkContext, checkpoint: str, query_id: str, operators: Sequence[OperatorInputs]
) -> list[int]:
    """The newest epoch in the store of each operator."""
    stores = [
        (inputs.operator.store_url(query_id), inputs.operator.store_retry_seconds, checkpoint)
        for inputs in operators
    ]
    if is_local_master(context.master or ""):
        found: list[int | CheckpointStoreError] = [_reached_or_error(store) for store in stores]
    else:
        # Only executors may reach the stores.
        one_task = context.parallelize(stores, 1)
        found = one_task.map(called_in_workers(_reached_or_error)).collect()
    for outcome in found:
        if isinstance(outcome, CheckpointStoreError):
            raise outcome
    return [outcome for outcome in found if isinstance(outcome, int)]


def _reached_or_error(store: tuple[str, float, str]) -> int | CheckpointStoreError:
    """The error is returned: if a task raised it, Spark would try the task again."""
    url, retry_seconds, checkpoint = store
    try:
        objects = RetryingObjectStore(open_object_store(url), retry_seconds)
        checkpoints = CompletedCheckpointStore(objects)
        checkpoints.starts.check_checkpoint(checkpoint)
        return checkpoints.reached()
    except CheckpointStoreError as error:
        return error
