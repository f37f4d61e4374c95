"""The runs of queries in this process, each with its operators of cowstate.

A run is found by its query's handle. A listener's event has only ids, and may come after the query
has ended. So the run is noted at the listener's start event, while Spark still holds the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from checkpoint_store.objects.remembered import Remembered
from spark_state.spark.stored.operator_documents import ShownRun, documents_of
from spark_state.spark.stored.stored_operators import StoredOperator, operators_in_plan

# Short, because a reader of progress and the listeners of all queries wait for the store.
PROGRESS_RETRY_SECONDS = 3
REMEMBERED_RUNS = 32


@dataclass(frozen=True, slots=True)
class QueryRun:
    """A run of a query. `operators`: the stores of the cowstate operators; a failing call to a
    store is tried again for PROGRESS_RETRY_SECONDS. `shown`: the entries of these operators in the
    query's progress."""

    operators: Sequence[StoredOperator]
    shown: ShownRun


# Limited, because the operators of a run remember manifests.
_runs: Remembered[str, QueryRun] = Remembered(REMEMBERED_RUNS)


def run_of(query: StreamingQuery) -> QueryRun:
    """The run of a query. The run may be over."""
    return _runs.get(str(query.runId)) or _noted(query._jsq.streamingQuery())


def run_of_event(query_id: UUID, run_id: UUID) -> ShownRun | None:
    """The run of an event; None if the run is over and was not noted while it was running."""
    run = _runs.get(str(run_id))
    if run is not None:
        return run.shown
    spark: Any = SparkSession._instantiatedSession
    if spark is None:
        return None
    java_id = spark._jvm.java.util.UUID.fromString(str(query_id))
    execution = spark._jsparkSession.sharedState().activeStreamingQueries().get(java_id)
    if execution is None or execution.runId().toString() != str(run_id):
        return None
    return _noted(execution).shown


def _noted(execution: Any) -> QueryRun:
    """Remember a run, and return the run. `execution`: Spark's StreamExecution."""
    query_id = str(execution.id().toString())
    operators = operators_in_plan(execution.analyzedPlan(), query_id, PROGRESS_RETRY_SECONDS)
    settings = execution.sparkSession().conf()
    run = QueryRun(operators, ShownRun(settings.get, partial(documents_of, operators)))
    _runs.put(str(execution.runId().toString()), run)
    return run
