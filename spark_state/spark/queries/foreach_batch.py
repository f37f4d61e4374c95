"""Wraps the functions of `foreachBatch`.

Spark calls the function in the thread of its query. Before the call, the wrapper writes the run of
the query into a local property of the thread, where tasks find the run: user code that calls
`setJobGroup` replaces Spark's own name of the run. After the call, the wrapper completes the epoch,
see `epoch_completion`. If the call is interrupted, the wrapper shortens the error, see
`stopped_batches`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_state.errors import BatchIdentityError
from spark_state.spark.queries.epoch_completion import EpochCompletion
from spark_state.spark.queries.stopped_batches import brief_when_stopped
from spark_state.spark.session.batch_identity import QUERY, BatchIdentity, name_run
from spark_state.spark.session.planned_operators import operators_in
from spark_state.spark.session.replaced_methods import replace_once

BatchFunction = Callable[[DataFrame, int], None]
_MARK = "_cowstate_completes_epochs"


def complete_epochs_of_foreach_batch() -> None:
    """Complete the epochs of later queries of this process. Safe to call again."""
    replace_once(DataStreamWriter, "foreachBatch", _MARK, _completing)


def _completing(spark_method: Any) -> Any:
    @wraps(spark_method)
    def foreach_batch(self: DataStreamWriter, func: BatchFunction) -> DataStreamWriter:
        operators = operators_in(self._df._jdf.queryExecution().analyzed())
        completion = EpochCompletion(operators) if operators else None
        writer: DataStreamWriter = spark_method(self, watched(func, self._spark, completion))
        return writer

    return foreach_batch


def watched(
    function: BatchFunction, spark: SparkSession, completion: EpochCompletion | None
) -> BatchFunction:
    """The function that Spark calls instead of the user's `function`. `completion`: None if the
    query has no operators."""

    def called(batch: DataFrame, epoch: int) -> None:
        context = spark.sparkContext
        query_id = context.getLocalProperty(QUERY)
        query = None if query_id is None else spark.streams.get(query_id)
        if query is not None:
            name_run(context, query.id, query.runId)
        elif completion is not None:
            raise BatchIdentityError(
                f"the function of foreachBatch is called outside of its query's thread: {QUERY} is "
                "not set, so no operator knows its epoch. Leave PYSPARK_PIN_THREAD unset"
            )
        with brief_when_stopped(query):
            function(batch, epoch)
            if completion is not None and query is not None:
                plan = query._jsq.streamingQuery().lastExecution().analyzed()
                completion.complete(batch, BatchIdentity(query.id, query.runId, epoch), plan)

    return called
