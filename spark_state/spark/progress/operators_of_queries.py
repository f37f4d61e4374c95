"""`progress`: the progress of a query's operators in their newest epoch."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.streaming.query import StreamingQuery

from checkpoint_store.objects.store_outages import RETRY_SECONDS
from checkpoint_store.operators.operator_progress import OperatorProgress
from spark_state.errors import ConfigurationError
from spark_state.spark.progress.connect_progress import progress_of_connect
from spark_state.spark.progress.newest_progress import newest_progress, without_operator
from spark_state.spark.session.connect_sessions import is_connect_query
from spark_state.spark.session.operator_configuration import LOCAL_STORE, STORE_KEY
from spark_state.spark.session.session_facts import settings_of
from spark_state.spark.session.store_options import store_options
from spark_state.spark.stored.stored_operators import (
    StoredOperator,
    operators_below,
    operators_in_plan,
)


def progress(query: StreamingQuery, *, subtasks: bool = False) -> tuple[OperatorProgress, ...]:
    """The progress of each cowstate operator of a query in the operator's newest epoch, by name.
    Numbers in names count as numbers: `operator-2` comes before `operator-10`.

    `query`: from `start` or `spark.streams.get`; the query may be over. Its session need not be
    enabled. `subtasks`: True to add the progress of each subtask. An operator without a complete
    epoch is left out, so the result is empty before the first batch.

    All numbers come from the stores: two listings and one read for each operator. With Spark
    Connect a small job reads the stores. Without Spark, `checkpoint_store.read_progress` reads the
    same numbers, also of older epochs.

    Raises ConfigurationError if `query` is not a query, and for a query without an operator of
    cowstate; NotAStoreError if the stores are gone; NoProgressError if a table is in the place of
    an operator's store; CorruptObjectError, StoreUnavailableError, StoreAccessError.
    """
    if is_connect_query(query):
        return progress_of_connect(query, subtasks=subtasks)
    if not isinstance(query, StreamingQuery):
        raise ConfigurationError(
            f"progress needs a StreamingQuery, got {query!r}; without one, call "
            'checkpoint_store.read_progress("<store>/<query id>")'
        )
    has_run = query._jsq.streamingQuery().lastExecution() is not None
    return newest_progress(_operators(query), has_run=has_run, subtasks=subtasks)


def _operators(query: StreamingQuery) -> Sequence[StoredOperator]:
    execution, query_id = query._jsq.streamingQuery(), str(query.id)
    planned = operators_in_plan(execution.analyzedPlan(), query_id)
    if planned:
        return planned
    # Another process may have planned the operators, with its own names for their functions.
    settings = settings_of(execution.sparkSession())
    root = settings.get(STORE_KEY, LOCAL_STORE)
    stored = operators_below(root, query_id, RETRY_SECONDS, store_options(settings))
    if not stored:
        raise without_operator(query_id, root)
    return stored
