"""`progress`: the progress of a query's operators in their newest epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from checkpoint_store.errors import NotAStoreError
from checkpoint_store.objects.store_outages import RETRY_SECONDS
from checkpoint_store.operators.operator_order import operator_order
from checkpoint_store.operators.operator_progress import OperatorProgress, SubtaskProgress
from spark_state.errors import ConfigurationError
from spark_state.spark.queries.connect_runs import StoredQuery, connect_run, stored_query
from spark_state.spark.session.connect_sessions import called_in_task, is_connect_query
from spark_state.spark.session.operator_configuration import LOCAL_STORE, STORE_KEY
from spark_state.spark.session.session_facts import settings_of
from spark_state.spark.session.store_options import store_options
from spark_state.spark.stored.stored_operators import (
    StoredOperator,
    operators_below,
    operators_in_plan,
)


def progress(query: StreamingQuery, *, subtasks: bool = False) -> tuple[OperatorProgress, ...]:
    """The progress of each cowstate operator of a query in the operator's newest epoch, in the
    order of names. Numbers in names count as numbers: `operator-2` comes before `operator-10`.

    `query`: from `start` or `spark.streams.get`; the query may be over. Its session need not be
    enabled. `subtasks`: True to add the progress of each subtask. An operator without a complete
    epoch is left out, so the result is empty before the first batch.

    All numbers come from the stores, which costs two listings and one read for each operator. With
    Spark Connect a small job reads the stores. Without Spark, `checkpoint_store.read_progress`
    reads the same numbers, also of older epochs.

    Raises ConfigurationError if `query` is not a query, and for a query without an operator of
    cowstate; NotAStoreError if the stores are gone; NotAnOperatorError if a table is in the place
    of an operator's store; CorruptObjectError, StoreUnavailableError, StoreAccessError.
    """
    if is_connect_query(query):
        return progress_of_connect(query, subtasks=subtasks)
    if not isinstance(query, StreamingQuery):
        raise ConfigurationError(
            f"progress needs a StreamingQuery, got {query!r}; without one, call "
            'checkpoint_store.read_progress("<store>/<query id>")'
        )
    has_run = query._jsq.streamingQuery().lastExecution() is not None
    return _newest_progress(_operators(query), has_run=has_run, subtasks=subtasks)


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
        raise _without_operator(query_id, root)
    return stored


def progress_of_connect(query: Any, *, subtasks: bool) -> tuple[OperatorProgress, ...]:
    """The progress of the operators of a query of Spark Connect: a task reads the stores, which the
    client may not reach."""
    stored = _stored(query)
    told = called_in_task(query._session, told_in_task, stored, False, subtasks)
    if not told and any(recent.numInputRows for recent in query.recentProgress):
        told = called_in_task(query._session, told_in_task, stored, True, subtasks)
    return tuple(map(progress_of, told))


def _stored(query: Any) -> StoredQuery:
    stored = connect_run(query._session, query.id, query.runId).stored
    if stored.roots != ():
        return stored
    # The plan may not show an operator, so search the stores, as for classic Spark.
    return stored_query(query._session, query.id)


def told_in_task(query: StoredQuery, has_run: bool, subtasks: bool) -> list[dict[str, Any]]:
    """The progress of a query's operators, as JSON values. Raises CowstateError."""
    operators = query.operators(RETRY_SECONDS)
    if not operators:
        raise _without_operator(query.query_id, query.root)
    return [*map(asdict, _newest_progress(operators, has_run=has_run, subtasks=subtasks))]


def progress_of(told: dict[str, Any]) -> OperatorProgress:
    """Build the progress of an operator from its JSON values."""
    subtasks = tuple(SubtaskProgress(**subtask) for subtask in told["subtasks"])
    return OperatorProgress(**{**told, "subtasks": subtasks})


def _newest_progress(
    operators: Sequence[StoredOperator], *, has_run: bool, subtasks: bool
) -> tuple[OperatorProgress, ...]:
    """The progress of each operator in its newest epoch, in the order of names. `has_run`: True if
    the query has run a batch. Raises NotAStoreError if the query has run a batch and no operator
    has a store, and CheckpointStoreError if a store cannot be read."""
    told, missing = [], []
    for operator in sorted(operators, key=lambda operator: operator_order(operator.url)):
        try:
            newest = operator.epochs()[-1:]
        except NotAStoreError as error:
            missing.append(error)
            continue
        told += [operator.progress(epoch, subtasks=subtasks) for epoch in newest]
    if missing and not told and has_run:
        raise missing[0]
    return tuple(told)


def _without_operator(query_id: str, root: str) -> ConfigurationError:
    """The error for a query without an operator of cowstate."""
    return ConfigurationError(
        f"query {query_id} has no operator of cowstate: its plan has none, and there is no store "
        f"below {root}/{query_id}. Plan one with spark_state.enable or transform_with_state, or "
        f"set {STORE_KEY} to where the stores of the query are"
    )
