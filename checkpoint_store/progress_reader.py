"""Reader for the progress of operators' past epochs, without Spark: `read_progress`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkpoint_store.errors import VersionNotRetainedError
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.objects.store_outages import RETRY_SECONDS
from checkpoint_store.operator_stores import operators_at
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.operators.operator_progress import (
    OperatorProgress,
    operator_progress,
)


def read_progress(
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    *,
    epochs: int = 1,
    subtasks: bool = False,
    retry_seconds: float = RETRY_SECONDS,
) -> tuple[OperatorProgress, ...]:
    """Read the progress of an operator's newest epochs, oldest first.

    `url`: the operator's store, or the directory of the operator's query. A query's directory gives
    the progress of all its operators, ordered by name; numbers in names count as numbers, so
    `operator-2` comes before `operator-10`. `epochs`: the greatest number of epochs per operator;
    only retained epochs are read. `subtasks`: add the progress of each subtask. `storage_options`
    are fsspec's options. A failed call to the store is tried again for `retry_seconds`.

    Raises NotAStoreError if there is no store, and NotAnOperatorError if `url` is a table or a
    query's checkpoint; VersionNotRetainedError if no operator has a complete epoch;
    CorruptObjectError, StoreUnavailableError, StoreAccessError; ValueError if `epochs` is less
    than 1.
    """
    if epochs < 1:
        raise ValueError(f"epochs is {epochs}; ask for 1 or more")
    histories = operators_at(url, storage_options, retry_seconds)
    progress = [
        told for history in histories for told in _newest(history, epochs, subtasks=subtasks)
    ]
    if not progress:
        raise VersionNotRetainedError(url, None, None, None)
    return tuple(progress)


def _newest(history: OperatorHistory, epochs: int, *, subtasks: bool) -> list[OperatorProgress]:
    return in_parallel(
        lambda epoch: progress_at(history, epoch, subtasks=subtasks), history.versions()[-epochs:]
    )


def progress_at(history: OperatorHistory, epoch: int, *, subtasks: bool) -> OperatorProgress:
    """Read the progress of one epoch. Raises VersionNotRetainedError, CorruptObjectError."""
    checkpoint, committed_ms = history.committed_at(epoch)
    name = history.metadata.operator
    return operator_progress(name, history.url, checkpoint, committed_ms, subtasks=subtasks)
