"""Adds operators of cowstate to the `stateOperators` of a query's progress in Python.

To Spark, a query with operators of cowstate has no state. The barriers of the subtasks have the
numbers of the epoch. So this module adds the operators when a progress of an enabled session
becomes a Python object: `lastProgress`, `recentProgress`, and the events of listeners in Python.
The `json` of the progress has the operators, too. The JVM's own listeners and log do not have the
operators.

A store that cannot be read does not disturb the query or a listener: the operators are missing, and
the log has a warning when the problem begins.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from threading import RLock
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    StateOperatorProgress,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery

from spark_state.spark.queries.connect_runs import connect_run
from spark_state.spark.queries.query_runs import run_of, run_of_event
from spark_state.spark.stored.operator_documents import Document, ShownRun

_MARK, _POSTING = "_cowstate_shows", "_cowstate_posting"

_log = logging.getLogger(__name__)


def show_operators_in_progress() -> None:
    """Add operators of cowstate to the progress of queries of enabled sessions, in this process.
    Safe to call again."""
    if _show_operators_of(StreamingQuery, lambda query: run_of(query).shown):
        _show_operators_in_events()


def show_operators_in_connect_progress() -> None:
    """Add operators of cowstate to the progress of queries of Spark Connect. Safe to call again."""
    from pyspark.sql.connect.streaming.query import StreamingQuery as ConnectQuery
    from pyspark.sql.connect.streaming.query import StreamingQueryListenerBus

    def find_run(query: Any) -> ShownRun:
        return connect_run(query._session, query.id, query.runId).shown

    if _show_operators_of(ConnectQuery, find_run):
        _show_operators_in_connect_events(StreamingQueryListenerBus)


def _show_operators_of(queries: Any, find_run: Callable[[Any], ShownRun]) -> bool:
    """Replace the properties of a class of queries. Return False if the properties are already
    replaced."""
    last, recent = queries.lastProgress, queries.recentProgress
    if hasattr(last.fget, _MARK):
        return False

    def last_progress(self: Any) -> StreamingQueryProgress | None:
        progress: StreamingQueryProgress | None = last.fget(self)
        if progress is not None:
            _show([progress], lambda: find_run(self))
        return progress

    def recent_progress(self: Any) -> list[StreamingQueryProgress]:
        progresses: list[StreamingQueryProgress] = recent.fget(self)
        _show(progresses, lambda: find_run(self))
        return progresses

    setattr(last_progress, _MARK, True)
    queries.lastProgress = property(last_progress, doc=last.__doc__)
    queries.recentProgress = property(recent_progress, doc=recent.__doc__)
    return True


def _show_operators_in_events() -> None:
    progress_event: Any = QueryProgressEvent.fromJObject
    started_event: Any = QueryStartedEvent.fromJObject

    def of_progress(cls: type[QueryProgressEvent], jevent: Any) -> QueryProgressEvent:
        event: QueryProgressEvent = progress_event.__func__(cls, jevent)
        progress = event.progress
        _show([progress], lambda: run_of_event(progress.id, progress.runId))
        return event

    def of_start(cls: type[QueryStartedEvent], jevent: Any) -> QueryStartedEvent:
        event: QueryStartedEvent = started_event.__func__(cls, jevent)
        _show([], lambda: run_of_event(event.id, event.runId))
        return event

    QueryProgressEvent.fromJObject = classmethod(of_progress)  # type: ignore[assignment]
    QueryStartedEvent.fromJObject = classmethod(of_start)  # type: ignore[assignment]


def _show_operators_in_connect_events(buses: Any) -> None:
    post = buses.post_to_all

    def post_to_all(self: Any, event: Any) -> None:
        if isinstance(event, QueryProgressEvent):
            progress, session = event.progress, self._sqm._session
            ids = str(progress.id), str(progress.runId)
            _show([progress], lambda: connect_run(session, *ids).shown)
        # `remove` holds the bus's lock while waiting for this thread, so do not take the lock here.
        # The second lock gives listeners one event at a time, as Spark's lock does.
        bus = copy(self)
        bus._lock = vars(self).setdefault(_POSTING, RLock())
        bus._listener_bus = _present(self._listener_bus)
        post(bus, event)

    buses.post_to_all = post_to_all


def _present(listeners: list[Any]) -> Iterator[Any]:
    """Yield each listener, unless the listener was removed before its turn."""
    for listener in tuple(listeners):
        if listener in listeners:
            yield listener


def _show(
    progresses: Sequence[StreamingQueryProgress], find_run: Callable[[], ShownRun | None]
) -> None:
    """Add the operators of a run to its progress, or log the reason why not."""
    run = None
    try:
        run = find_run()
        if run is None or not progresses or not run.is_enabled():
            return
        moments = [(progress.batchId, progress.timestamp) for progress in progresses]
        shown = [
            (progress, _with_operators(progress, documents))
            for progress, documents in zip(progresses, run.documents(moments), strict=True)
            if documents
        ]
    except Exception as error:  # an error here would lose the event for all listeners
        if run is None or not run.is_failing:
            _log.warning("a query's progress lacks its operators of cowstate: %s", error)
        if run is not None:
            run.is_failing = True
        return
    run.is_failing = False
    # No step here can fail, so an event has all of its operators, or is unchanged.
    for progress, (operators, document) in shown:
        progress["stateOperators"] = operators
        progress._jprogress, progress._jdict = None, document


def _with_operators(
    progress: StreamingQueryProgress, documents: Sequence[Document]
) -> tuple[list[StateOperatorProgress], dict[str, Any]]:
    """The operators of a progress and the operators in `documents`, in one list; and the JSON of
    the progress with all of these operators, because the JVM's JSON has only Spark's operators."""
    whole = json.loads(progress.json)
    whole["stateOperators"] = [*whole["stateOperators"], *documents]
    added = map(StateOperatorProgress.fromJson, documents)
    return [*progress["stateOperators"], *added], whole
