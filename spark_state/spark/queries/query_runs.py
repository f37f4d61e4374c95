"""The runs of queries that this process has met, each with its operators of cowstate.

A run is found by its query's handle. An event of a listener has ids only, and comes when its query
may be over already; so the run is noted when the listener hears of its start, when Spark holds the
query still.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from checkpoint_store.objects.remembered import Remembered
from spark_state.spark.session.operator_configuration import ENABLED_KEY, is_enabled
from spark_state.spark.stored.operator_documents import Document, ShownDocuments, documents_of
from spark_state.spark.stored.stored_operators import StoredOperator, operators_in_plan

# Who looks at progress waits for the store, and so do the listeners of all queries.
PROGRESS_RETRY_SECONDS = 3
REMEMBERED_RUNS = 32


@dataclass
class QueryRun:
    """One run of a query.

    `session`: its Spark session, in the JVM. `operators`: read with little patience. `is_failing`:
    the last read failed, and the log says so.
    """

    session: Any
    operators: Sequence[StoredOperator]
    shown: ShownDocuments = field(default_factory=ShownDocuments)
    is_failing: bool = False

    def is_enabled(self) -> bool:
        """Whether the session of the query is enabled now."""
        return is_enabled({ENABLED_KEY: self.session.conf().get(ENABLED_KEY, "false")})

    def documents(self, moments: Sequence[tuple[int, str]]) -> list[Sequence[Document]]:
        """What the operators show, for each batch and the time when it began. Raises
        CheckpointStoreError."""
        return self.shown.of(moments, lambda batches: documents_of(self.operators, batches))


# A run is small, but its operators remember manifests.
_runs: Remembered[str, QueryRun] = Remembered(REMEMBERED_RUNS)


def run_of(query: StreamingQuery) -> QueryRun:
    """The run of a query, which may be over."""
    return _remembered(str(query.runId)) or _noted(query._jsq.streamingQuery())


def run_of_event(query_id: UUID, run_id: UUID) -> QueryRun | None:
    """The run that an event tells of; None if it is over and was not met before."""
    run = _remembered(str(run_id))
    if run is not None:
        return run
    spark: Any = SparkSession._instantiatedSession
    if spark is None:
        return None
    java_id = spark._jvm.java.util.UUID.fromString(str(query_id))
    execution = spark._jsparkSession.sharedState().activeStreamingQueries().get(java_id)
    if execution is None or execution.runId().toString() != str(run_id):
        return None
    return _noted(execution)


def _remembered(run_id: str) -> QueryRun | None:
    return _runs.get(run_id)


def _noted(execution: Any) -> QueryRun:
    """A run, noted. `execution`: Spark's StreamExecution."""
    query_id = str(execution.id().toString())
    operators = operators_in_plan(execution.analyzedPlan(), query_id, PROGRESS_RETRY_SECONDS)
    run = QueryRun(execution.sparkSession(), operators)
    _runs.put(str(execution.runId().toString()), run)
    return run
