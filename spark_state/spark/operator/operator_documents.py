"""Entries of `stateOperators` in Spark's progress, from the barriers of operators of cowstate.

    numRowsTotal, numRowsUpdated, numRowsRemoved    entries: a value, an element of a list or map
    allUpdatesTimeMs                                in the processor, of all subtasks together
    commitTimeMs                                    to write files, of all subtasks together
    memoryUsedBytes                                 an estimate, see heap_memory
    allRemovalsTimeMs                               0: removals are not timed on their own
    numShufflePartitions, numStateStoreInstances    subtasks
    customMetrics                                   numValueStateVars and so on; some of our own

A batch that did not run the operator shows the state as it was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from checkpoint_store.errors import NotAStoreError
from spark_state.spark.operator.stored_operators import StoredOperator, states_of

_KINDS = {"value": "numValueStateVars", "list": "numListStateVars", "map": "numMapStateVars"}

Document = dict[str, Any]
"""An entry of `stateOperators`, as Spark writes it in JSON."""


@dataclass(frozen=True, slots=True)
class OfBatch:
    """What an operator shows for a batch, and whether the batch ran it."""

    document: Document
    ran: bool


def documents_of(operator: StoredOperator, batches: Sequence[int]) -> list[OfBatch | None]:
    """What an operator shows for each batch; None before its first epoch. Raises
    CheckpointStoreError."""
    try:
        epochs = operator.epochs()
    except NotAStoreError:
        return [None] * len(batches)
    shown: list[OfBatch | None] = []
    for batch in batches:
        place = bisect_right(epochs, batch)
        epoch = epochs[place - 1] if place else None
        ran = epoch == batch
        shown.append(
            None if epoch is None else OfBatch(_document(operator, epoch, ran=ran), ran=ran)
        )
    return shown


def _document(operator: StoredOperator, epoch: int, *, ran: bool) -> Document:
    """`ran`: whether the batch ran the operator; if not, the epoch is an earlier one."""
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
