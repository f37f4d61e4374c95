"""Runs of Spark Connect queries in this client, and the progress of their operators.

A client may not reach the stores of the server, so a task reads the stores. For a query started by
this client, the plan names the operators. For a query of another client, the operators are found by
their stores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession

from checkpoint_store.objects.remembered import Remembered
from checkpoint_store.operators.operator_order import operator_order
from spark_state.spark.queries.query_runs import PROGRESS_RETRY_SECONDS, REMEMBERED_RUNS
from spark_state.spark.session.connect_sessions import called_in_task
from spark_state.spark.session.operator_configuration import LOCAL_STORE, STORE_KEY
from spark_state.spark.session.store_options import store_options
from spark_state.spark.stored.operator_documents import Document, ShownRun, documents_of
from spark_state.spark.stored.stored_operators import StoredOperator, operators_below
from spark_state.subtasks.epoch_request import operator_store_url


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """The stores of a query's operators, for use in a task. `root`: the root URL of stores, from
    the session's setting STORE_KEY. `roots`: the name and the root URL of each operator in the
    plan, last operator first, or None if another client started the query; then the operators are
    found below `root`. `store_options`: the options for the clients of stores."""

    query_id: str
    root: str
    roots: tuple[tuple[str, str], ...] | None
    store_options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    def operators(self, retry_seconds: float) -> tuple[StoredOperator, ...]:
        """The operators, last operator first. If the plan is unknown, sorted by name in descending
        order, because `enable` gives the last operator the greatest number. Raises
        CheckpointStoreError."""
        if self.roots is None:
            stored = operators_below(self.root, self.query_id, retry_seconds, self.store_options)
            return tuple(sorted(stored, key=lambda store: operator_order(store.url), reverse=True))
        return tuple(
            StoredOperator(
                name,
                operator_store_url(root, self.query_id, name),
                retry_seconds,
                self.store_options,
            )
            for name, root in self.roots
        )


@dataclass(frozen=True, slots=True)
class ConnectRun:
    """A run of a query. `stored`: the stores of the query's operators; `shown`: the operators in
    the progress of the query."""

    stored: StoredQuery
    shown: ShownRun


# Key: the run. For runs that another client started: the run and the session's present stores.
_started: Remembered[str, ConnectRun] = Remembered(REMEMBERED_RUNS)
_met: Remembered[tuple[str, StoredQuery], ConnectRun] = Remembered(REMEMBERED_RUNS)


def note_connect_run(query: Any, stores: StoredQuery) -> None:
    """Remember the operators of a query that has just been started. `stores`: the stores, without
    the query's id. Sends no request to the server: the request could fail, and the query already
    runs."""
    stored = replace(stores, query_id=query.id)
    _started.put(query.runId, _run(query._session, stored))


def connect_run(session: Any, query_id: str, run_id: str) -> ConnectRun:
    """A run of a query. The run may be over."""
    started = _started.get(run_id)
    if started is not None:
        return started
    stored = stored_query(session, query_id)
    met = _met.get((run_id, stored))
    if met is None:
        met = _run(session, stored)
        _met.put((run_id, stored), met)
    return met


def _run(session: Any, stored: StoredQuery) -> ConnectRun:
    def read(batches: Sequence[int]) -> Any:
        if stored.roots == ():
            return [[] for _ in batches]
        return called_in_task(session, documents_in_task, stored, batches)

    return ConnectRun(stored, ShownRun(lambda key, default: session.conf.get(key, default), read))


def documents_in_task(query: StoredQuery, batches: Sequence[int]) -> list[list[Document]]:
    """The `stateOperators` entries of a query's operators for each batch. Raises
    CheckpointStoreError."""
    return documents_of(query.operators(PROGRESS_RETRY_SECONDS), batches)


def stored_query(session: SparkSession, query_id: str) -> StoredQuery:
    """The stores of a query of another client, from the session's settings. Raises
    ConfigurationError."""
    settings = dict(session.conf.getAll)
    root = settings.get(STORE_KEY, LOCAL_STORE)
    return StoredQuery(query_id, root, None, store_options(settings))
