"""Tells the tasks of a query which runs of queries had already ended when the query was started.

A host that is short of memory gives up the state of ended runs first. The driver writes the runs
into a local property of the thread that starts the query, and the thread of the query inherits the
property. A client of Spark Connect has no such thread.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from pyspark import SparkContext, TaskContext
from pyspark.sql.streaming.query import StreamingQuery

_ENDED = "cowstate.endedRuns"

_lock = threading.Lock()
# A query that has ended is removed: its plan and its session are large.
_started: dict[str, StreamingQuery] = {}
# At most 32: hosts already know of runs that ended earlier.
_ended: deque[str] = deque(maxlen=32)


def note_started(query: StreamingQuery) -> None:
    """Note the start of a query with operators. Once the query has ended, later queries tell their
    tasks that the run has ended."""
    with _lock:
        _started[str(query.runId)] = query


def name_ended_runs(context: SparkContext) -> None:
    """Tell the tasks of queries started by this thread which runs have ended by now."""
    gateway: Any = context._gateway
    with _lock:
        for run_id, query in list(_started.items()):
            # A query of another gateway ended with its JVM, which no longer answers.
            is_here = query._jsq._gateway_client is gateway._gateway_client
            if not is_here or not query.isActive:
                del _started[run_id]
                _ended.append(run_id)
        context.setLocalProperty(_ENDED, ",".join(_ended))


def ended_runs(context: TaskContext) -> tuple[str, ...]:
    """The ended runs, from the task's local property."""
    return tuple(filter(None, (context.getLocalProperty(_ENDED) or "").split(",")))
