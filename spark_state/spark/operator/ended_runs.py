"""Tells the tasks of a query which runs had ended when it was started.

A host that is short of memory gives up their state first. The driver writes the runs into a local
property of the thread that starts the query, and the thread of the query inherits it. A client of
Spark Connect has no such thread.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from pyspark import SparkContext, TaskContext
from pyspark.sql.streaming.query import StreamingQuery

_ENDED = "cowstate.endedRuns"
# What ended before has been told of already, and hosts remember it.
_REMEMBERED = 32

_started: deque[StreamingQuery] = deque(maxlen=_REMEMBERED)


def note_started(query: StreamingQuery) -> None:
    """A query with operators was started; later ones tell their tasks when it has ended."""
    _started.append(query)


def name_ended_runs(context: SparkContext) -> None:
    """Tell the tasks of queries that this thread starts which runs have ended by now."""
    gateway: Any = context._gateway
    ended = [
        str(query.runId)
        for query in list(_started)
        if query._jsq._gateway_client is gateway._gateway_client and not query.isActive
    ]
    context.setLocalProperty(_ENDED, ",".join(ended))


def ended_runs(context: TaskContext) -> tuple[str, ...]:
    """The runs that the driver named to this task."""
    return tuple(filter(None, (context.getLocalProperty(_ENDED) or "").split(",")))
