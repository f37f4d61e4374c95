"""Entries of `stateOperators` in Spark's progress, from the barriers of operators of cowstate.

    numRowsTotal, numRowsUpdated, numRowsRemoved    numbers of values, and of elements of lists and
                                                    maps
    allUpdatesTimeMs                                time in the processor, sum over all subtasks
    commitTimeMs                                    time to write files, sum over all subtasks
    memoryUsedBytes                                 an estimate, see heap_memory
    allRemovalsTimeMs                               0: the time of removals is not measured
    numShufflePartitions, numStateStoreInstances    the number of subtasks
    customMetrics                                   Spark's, such as numValueStateVars, and some
                                                    metrics that only cowstate has

If a batch did not run the operator, the entry shows the unchanged state. `numDeletedStateVars` then
has the same value as in the last batch that ran the operator, as in Spark's own entries. Spark
reports a batch only when the batch is over, so the entry of a batch never changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from checkpoint_store.errors import NotAStoreError
from checkpoint_store.objects.remembered import Remembered
from spark_state.spark.session.operator_configuration import ENABLED_KEY, is_enabled
from spark_state.spark.stored.stored_operators import StoredOperator, states_of

REMEMBERED_BATCHES = 256
_KINDS = {"value": "numValueStateVars", "list": "numListStateVars", "map": "numMapStateVars"}

Document = dict[str, Any]
"""An entry of `stateOperators`, in the form of Spark's JSON."""


@dataclass
class ShownRun:
    """The documents of a query's run, for Spark's progress. `setting`: returns the value of a
    setting of the query's session, or the default; `read`: reads the documents of batches from the
    stores, see `documents_of`; `is_failing`: True if the last read failed and the log has the
    warning.

    The documents of a batch are remembered. If a batch has no documents, the next call reads the
    stores again, because the stores may have been out of reach.
    """

    setting: Callable[[str, str], Any]
    read: Callable[[Sequence[int]], Sequence[Sequence[Document]]]
    is_failing: bool = False
    _shown: Remembered[tuple[int, str], Sequence[Document]] = field(
        default_factory=lambda: Remembered(REMEMBERED_BATCHES)
    )

    def is_enabled(self) -> bool:
        """Return True if the session of the query is enabled now."""
        return is_enabled({ENABLED_KEY: str(self.setting(ENABLED_KEY, "false"))})

    def documents(self, moments: Sequence[tuple[int, str]]) -> list[Sequence[Document]]:
        """The documents for each moment. A moment is the number of a batch, and the time when the
        batch began. Reads no store if the documents of all moments are remembered. Raises
        CowstateError."""
        shown = {
            moment: documents
            for moment in moments
            if (documents := self._shown.get(moment)) is not None
        }
        missing = [moment for moment in moments if moment not in shown]
        if missing:
            shown |= zip(missing, self.read([batch for batch, _ in missing]), strict=True)
        for moment in missing:
            if shown[moment]:
                self._shown.put(moment, shown[moment])
        return [shown[moment] for moment in moments]


def documents_of(
    operators: Sequence[StoredOperator], batches: Sequence[int]
) -> list[list[Document]]:
    """The documents of the operators for each batch, without operators before their first epoch.
    Raises CheckpointStoreError."""
    of_operators = [_documents_of(operator, batches) for operator in operators]
    return [
        [document for documents in of_operators if (document := documents[index]) is not None]
        for index in range(len(batches))
    ]


def _documents_of(operator: StoredOperator, batches: Sequence[int]) -> list[Document | None]:
    """The document of an operator for each batch; None before the first epoch."""
    try:
        epochs = operator.epochs()
    except NotAStoreError:
        return [None] * len(batches)
    shown: list[Document | None] = []
    for batch in batches:
        place = bisect_right(epochs, batch)
        epoch = epochs[place - 1] if place else None
        shown.append(None if epoch is None else _document(operator, epoch, ran=epoch == batch))
    return shown


def _document(operator: StoredOperator, epoch: int, *, ran: bool) -> Document:
    """The document of an epoch for a batch. `ran`: True if the batch ran the operator; if not,
    `epoch` is an earlier epoch."""
    progress = operator.progress(epoch)
    states = states_of(operator.history.checkpoint_at(epoch)).values()
    kinds = Counter(state.kind for state in states)
    metrics: dict[str, int | None] = {metric: kinds[kind] for kind, metric in _KINDS.items()}
    metrics |= {
        "numDeletedStateVars": progress.states_deleted,
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
