"""The progress of a Spark Connect query: a task reads the stores, which the client may not
reach."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from checkpoint_store.objects.store_outages import RETRY_SECONDS
from checkpoint_store.operators.operator_progress import OperatorProgress, SubtaskProgress
from spark_state.spark.progress.newest_progress import newest_progress, without_operator
from spark_state.spark.queries.connect_runs import StoredQuery, connect_run, stored_query
from spark_state.spark.session.connect_sessions import called_in_task


def progress_of_connect(query: Any, *, subtasks: bool) -> tuple[OperatorProgress, ...]:
    """The progress of the operators of a query, as `progress` returns it."""
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
    return stored_query(query._session, query.id, None)


def told_in_task(query: StoredQuery, has_run: bool, subtasks: bool) -> list[dict[str, Any]]:
    """The progress of a query's operators, as JSON values. Raises CowstateError."""
    operators = query.operators(RETRY_SECONDS)
    if not operators:
        raise without_operator(query.query_id, query.root)
    return [*map(asdict, newest_progress(operators, has_run=has_run, subtasks=subtasks))]


def progress_of(told: dict[str, Any]) -> OperatorProgress:
    """The progress in its JSON values."""
    subtasks = tuple(SubtaskProgress(**subtask) for subtask in told["subtasks"])
    return OperatorProgress(**{**told, "subtasks": subtasks})
