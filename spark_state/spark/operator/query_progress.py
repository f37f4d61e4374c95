"""`lastProgress` and `recentProgress` of queries: operators of cowstate among `stateOperators`.

To Spark such a query has no state. Each subtask's barrier says what its epoch did, so the operators
are added when the progress is read in Python. Listeners, the log and the JSON text of a progress
have what Spark has: nothing. A batch that did not run the operator shows the state as it was.

    numRowsTotal, numRowsUpdated, numRowsRemoved    entries: a value, an element of a list or map
    allUpdatesTimeMs                                in the processor, of all subtasks together
    commitTimeMs                                    to write files, of all subtasks together
    allRemovalsTimeMs, memoryUsedBytes              0: not measured
    numShufflePartitions, numStateStoreInstances    subtasks
    customMetrics                                   numValueStateVars and so on; some of our own
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import Counter
from typing import Any

from pyspark.sql.streaming.listener import StateOperatorProgress, StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from checkpoint_store.errors import CheckpointStoreError
from spark_state.spark.operator.operator_configuration import is_enabled
from spark_state.spark.operator.stored_operators import StoredOperator, operators_of, states_of

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
        progress = last.fget(self)
        return progress and _with_operators(self, [progress])[0]

    def recent_progress(self: StreamingQuery) -> list[StreamingQueryProgress]:
        return _with_operators(self, recent.fget(self))

    setattr(last_progress, _MARK, True)
    StreamingQuery.lastProgress = property(last_progress, doc=last.__doc__)  # type: ignore[assignment,method-assign]
    StreamingQuery.recentProgress = property(recent_progress, doc=recent.__doc__)  # type: ignore[assignment,method-assign]


def _with_operators(
    query: StreamingQuery, progresses: list[StreamingQueryProgress]
) -> list[StreamingQueryProgress]:
    settings = dict(query._jsq.sparkSession().conf().getAllAsJava())
    if not progresses or not is_enabled(settings):
        return progresses
    try:
        for operator in operators_of(str(query.id), settings).values():
            epochs = operator.epochs()
            for progress in progresses:
                place = bisect_right(epochs, progress.batchId)
                if place:
                    added = _progress_of(operator, epochs[place - 1], progress.batchId)
                    progress["stateOperators"] = [*progress["stateOperators"], added]
    except CheckpointStoreError as error:
        _log.warning(
            "the progress of query %s lacks its operators of cowstate: %s", query.id, error
        )
    return progresses


def _progress_of(operator: StoredOperator, epoch: int, batch: int) -> StateOperatorProgress:
    checkpoint = operator.checkpoint(epoch)
    reports = [barrier.report for barrier in checkpoint.barriers if barrier.report is not None]
    of_batch = reports if epoch == batch else []
    kinds = Counter(state.kind for state in states_of(checkpoint).values())
    metrics = {metric: kinds[kind] for kind, metric in _KINDS.items()}
    metrics["numTTLStateVars"] = sum(
        state.ttl_ms is not None for state in states_of(checkpoint).values()
    )
    metrics["restoreTimeMs"] = sum(report.restore_ms for report in of_batch)
    metrics["writtenBytes"] = sum(report.written_bytes for report in of_batch)
    return StateOperatorProgress(
        operatorName=operator.name,
        numRowsTotal=sum(report.entries for report in reports),
        numRowsUpdated=sum(report.changed for report in of_batch),
        numRowsRemoved=sum(report.removed for report in of_batch),
        allUpdatesTimeMs=sum(report.process_ms for report in of_batch),
        allRemovalsTimeMs=0,
        commitTimeMs=sum(report.write_ms for report in of_batch),
        memoryUsedBytes=0,
        numRowsDroppedByWatermark=sum(report.late_rows or 0 for report in of_batch),
        numShufflePartitions=checkpoint.parallelism,
        numStateStoreInstances=checkpoint.parallelism,
        customMetrics=metrics,
    )
