"""Operators of cowstate among the `stateOperators` of a query's progress, where Python sees it.

To Spark such a query has no state. Each subtask's barrier says what its epoch did. So the operators
are added when a progress of an enabled session becomes a Python object: `lastProgress`,
`recentProgress`, and the events of listeners in Python. They are in its `json`, too. The JVM's own
listeners and log have what Spark has: nothing. A batch that did not run the operator shows the
state as it was.

    numRowsTotal, numRowsUpdated, numRowsRemoved    entries: a value, an element of a list or map
    allUpdatesTimeMs                                in the processor, of all subtasks together
    commitTimeMs                                    to write files, of all subtasks together
    memoryUsedBytes                                 an estimate, see heap_memory
    allRemovalsTimeMs                               0: removals are not timed on their own
    numShufflePartitions, numStateStoreInstances    subtasks
    customMetrics                                   numValueStateVars and so on; some of our own

A store that cannot be read harms no query and no listener: the operators are missing, and the log
has a warning when that begins.
"""

from __future__ import annotations

import json
import logging
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    StateOperatorProgress,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery

from checkpoint_store.errors import NotAStoreError
from spark_state.spark.operator.query_runs import QueryRun, run_of, run_of_event
from spark_state.spark.operator.stored_operators import StoredOperator, states_of

_MARK = "_cowstate_shows"
_KINDS = {"value": "numValueStateVars", "list": "numListStateVars", "map": "numMapStateVars"}

_log = logging.getLogger(__name__)


def show_operators_in_progress() -> None:
    """Add operators of cowstate to the progress of queries of enabled sessions, in this process.
    May be called again."""
    last: Any = StreamingQuery.lastProgress
    if hasattr(last.fget, _MARK):
        return
    recent: Any = StreamingQuery.recentProgress

    def last_progress(self: StreamingQuery) -> StreamingQueryProgress | None:
        progress: StreamingQueryProgress | None = last.fget(self)
        if progress is not None:
            _show([progress], lambda: run_of(self))
        return progress

    def recent_progress(self: StreamingQuery) -> list[StreamingQueryProgress]:
        progresses: list[StreamingQueryProgress] = recent.fget(self)
        _show(progresses, lambda: run_of(self))
        return progresses

    setattr(last_progress, _MARK, True)
    StreamingQuery.lastProgress = property(last_progress, doc=last.__doc__)  # type: ignore[assignment,method-assign]
    StreamingQuery.recentProgress = property(recent_progress, doc=recent.__doc__)  # type: ignore[assignment,method-assign]
    _show_operators_in_events()


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


def _show(
    progresses: Sequence[StreamingQueryProgress], find_run: Callable[[], QueryRun | None]
) -> None:
    """Add the operators of a run to its progress, or tell why not."""
    run = None
    try:
        run = find_run()
        if run is None or not progresses or not run.operators or not run.is_enabled():
            return
        added = [_documents(run, operator, progresses) for operator in run.operators]
        shown = [
            _with_operators(progress, [document for document in documents if document is not None])
            for progress, *documents in zip(progresses, *added, strict=True)
        ]
    except Exception as error:  # a listener that raises loses its event, and others' events
        if run is None or not run.is_failing:
            _log.warning("a query's progress lacks its operators of cowstate: %s", error)
        if run is not None:
            run.is_failing = True
        return
    run.is_failing = False
    # Nothing here can fail, so an event has all of its operators or is as it comes from Spark.
    for progress, (operators, document) in zip(progresses, shown, strict=True):
        progress["stateOperators"] = operators
        progress._jprogress, progress._jdict = None, document


def _with_operators(
    progress: StreamingQueryProgress, documents: Sequence[dict[str, Any]]
) -> tuple[list[StateOperatorProgress], dict[str, Any]]:
    """The operators of a progress with those of the documents, and its JSON with them, which Spark
    takes from the JVM otherwise."""
    whole = json.loads(progress.json)
    whole["stateOperators"] = [*whole["stateOperators"], *documents]
    added = map(StateOperatorProgress.fromJson, documents)
    return [*progress["stateOperators"], *added], whole


def _documents(
    run: QueryRun, operator: StoredOperator, progresses: Sequence[StreamingQueryProgress]
) -> list[dict[str, Any] | None]:
    """What an operator shows in each progress; None before its first epoch."""
    keys = [(operator.url, progress.batchId, progress.timestamp) for progress in progresses]
    shown = [run.shown.get(key) for key in keys]
    if None not in shown:
        return shown
    try:
        epochs = operator.epochs()
    except NotAStoreError:
        return shown
    for index, key in enumerate(keys):
        batch = key[1]
        place = bisect_right(epochs, batch)
        if shown[index] is not None or not place:
            continue
        epoch = epochs[place - 1]
        shown[index] = document = _document(operator, epoch, ran=epoch == batch)
        if epoch == batch:
            run.shown.put(key, document)
    return shown


def _document(operator: StoredOperator, epoch: int, *, ran: bool) -> dict[str, Any]:
    """An entry of `stateOperators`, as Spark writes it in JSON. `ran`: whether the batch ran the
    operator; if not, the epoch is an earlier one."""
    progress = operator.progress(epoch)
    states = states_of(operator.checkpoint(epoch)).values()
    kinds = Counter(state.kind for state in states)
    metrics: dict[str, int | None] = {metric: kinds[kind] for kind, metric in _KINDS.items()}
    metrics |= {
        "numTTLStateVars": sum(state.ttl_ms is not None for state in states),
        "numTimers": progress.timers,
        "restoreTimeMs": progress.restore_ms if ran else 0,
        "writtenBytes": progress.written_bytes if ran else 0,
    }
    return {
        "operatorName": operator.name,
        "numRowsTotal": progress.rows_total,
        "numRowsUpdated": progress.rows_updated if ran else 0,
        "allUpdatesTimeMs": progress.process_ms if ran else 0,
        "numRowsRemoved": progress.rows_removed if ran else 0,
        "allRemovalsTimeMs": 0,
        "commitTimeMs": progress.write_ms if ran else 0,
        "memoryUsedBytes": progress.memory_bytes or 0,
        "numRowsDroppedByWatermark": (progress.late_rows or 0) if ran else 0,
        "numShufflePartitions": progress.parallelism,
        "numStateStoreInstances": progress.parallelism,
        "customMetrics": {name: value for name, value in metrics.items() if value is not None},
    }
