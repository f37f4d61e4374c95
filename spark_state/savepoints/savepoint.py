"""Savepoints: a copy of an operator's whole state after an epoch, as a store of its own.

A savepoint is full and canonical: rows that every backend reads, and no file of another store. So
users can copy a savepoint to any place, read it with `format("cowstate")` and `open_store`, and
name it in `spark.cowstate.restoreFrom`. A savepoint is a store with one epoch. The barriers are
published after all files are durable; if a barrier is missing, the store has no epoch.

All operators of a query are copied together. But the operators' stores cannot all get the epoch at
the same moment. So the copy writes the last barrier of each operator at the very end, one after the
other. After a failure between these last barriers, only some operators have the epoch, and a reader
of all operators gets an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from checkpoint_store.epochs.completed_checkpoint import Barrier
from checkpoint_store.epochs.published_objects import PublishedObjects
from checkpoint_store.files.state_handle import bytes_of
from checkpoint_store.interface_words import words
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.objects.store_outages import RETRY_SECONDS
from checkpoint_store.operator_stores import operators_at
from checkpoint_store.operators.completed_checkpoint_store import (
    CompletedCheckpointStore,
)
from checkpoint_store.operators.epoch_pins import EpochPins
from checkpoint_store.operators.operator_history import OperatorHistory
from spark_state.errors import ConfigurationError
from spark_state.savepoints.operator_copy import OperatorCopy
from spark_state.savepoints.shared_epoch import directory_name, epochs_of, shared_epoch
from spark_state.subtasks.store_session import store_id


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A finished savepoint of one operator.

    `url`: URL of the savepoint; `source`: URL of the copied store; `operator`: the operator's name;
    `epoch`: the epoch whose state was copied; `subtasks`: number of subtasks in the epoch;
    `entries`: number of values and elements; `bytes`: length of all files together.
    """

    url: str
    source: str
    operator: str
    epoch: int
    subtasks: int
    entries: int
    bytes: int


def savepoint(
    store: str,
    target: str,
    *,
    epoch: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Savepoint, ...]:
    """Write a savepoint of an operator, whose query may run meanwhile.

    `store`: URL of an operator's store, or of the directory of a query. For a query, each operator
    gets a savepoint in `target`/<operator name>, all of the same epoch. `target`: a URL where
    nothing exists yet. `epoch`: the epoch to save, None for the newest epoch that all operators
    have. `storage_options`: fsspec's options for both URLs. Retention keeps the epoch while the
    copy reads.

    Raises

        ConfigurationError        `target` is not empty; `target` is inside `store`, or `store`
                                  inside `target`; the operators have no epoch in common; one
                                  operator lags, so the common epoch is old
        NotAStoreError, NotAnOperatorError
        VersionNotRetainedError   the store does not have the epoch
        CorruptObjectError, and the errors of object stores

    After an error no operator has an epoch at `target`, unless one of the very last writes failed.
    Then only some operators have the epoch, each with its whole state: the directory `target` is no
    savepoint.
    """
    pairs = _pairs(store, target, storage_options)
    _check_apart(store, target, storage_options)
    for _, place in pairs:
        _check_nothing_there(place)
    way_out = f"Name the store of one operator, or {words().choose_epoch} that all have"
    chosen = _chosen_epoch(store, [history for history, _ in pairs], epoch, way_out)
    # Retention never deletes the newest epochs, so a pin on a new epoch comes in time. Retention
    # may delete an old epoch before the pin; then the copy raises an error.
    with ExitStack() as pins:
        for history, _ in pairs:
            pins.enter_context(EpochPins(history.store).pinned(chosen))
        return _written(pairs, chosen)


def restore(
    savepoint: str, store: str, *, storage_options: Mapping[str, Any] | None = None
) -> tuple[Savepoint, ...]:
    """Write the store of an operator from a savepoint, so that the operator's query can go on.

    `savepoint`: URL of a savepoint, or of a directory with a savepoint of each operator. `store`:
    <spark.cowstate.store>/<query id>/<operator>, or <spark.cowstate.store>/<query id> for all
    operators; the stores must have no epoch yet. The query must be the query of the savepoint, and
    the last batch in the query's checkpoint must be the savepoint's epoch: otherwise the first
    epoch of the query raises an error. To begin a query with another id, do not call `restore`, but
    set spark.cowstate.restoreFrom to the savepoint.

    Raises ConfigurationError if the store has epochs or belongs to another query, or if the
    operators have no epoch in common; and the errors of `savepoint`. After most errors no operator
    has an epoch at `store`. If one of the very last writes fails, some operators may have the
    epoch. The query does not start as long as an operator has no epoch, unless
    spark.cowstate.startEmpty is set.
    """
    pairs = _pairs(savepoint, store, storage_options)
    for history, place in pairs:
        _check_may_be_restored(history, place)
    chosen = _chosen_epoch(
        savepoint, [history for history, _ in pairs], None, "Name the store of one"
    )
    return _written(pairs, chosen, is_restored=True)


def _pairs(
    source: str, target: str, storage_options: Mapping[str, Any] | None
) -> list[tuple[OperatorHistory, ObjectStore]]:
    """Return the operators at `source`, each with the store for its copy."""
    histories = operators_at(source, storage_options, RETRY_SECONDS)
    own = open_object_store(source, storage_options).url.rstrip("/")
    pairs: list[tuple[OperatorHistory, ObjectStore]] = []
    for history in histories:
        is_of_query = history.url.rstrip("/") != own
        place = f"{target.rstrip('/')}/{directory_name(history)}" if is_of_query else target
        opened = open_object_store(place, storage_options)
        pairs.append((history, RetryingObjectStore(opened, RETRY_SECONDS)))
    return pairs


def _check_apart(source: str, target: str, storage_options: Mapping[str, Any] | None) -> None:
    urls = [open_object_store(url, storage_options).url.rstrip("/") for url in (source, target)]
    first, second = (f"{url}/" for url in urls)
    if first.startswith(second) or second.startswith(first):
        raise ConfigurationError(
            f"{urls[1]} is not apart from {urls[0]}: name a place that is neither in it nor around "
            "it"
        )


def _check_nothing_there(place: ObjectStore) -> None:
    held = [*(info.name for info in place.list("")), *place.list_directories("")]
    if held:
        names = sorted({name.lstrip("/").partition("/")[0] for name in held})
        raise ConfigurationError(
            f"{place.url} is not empty: it has {', '.join(names[:5])}. Name a place where nothing "
            "is. If a savepoint was stopped there, it is not complete: delete what is there"
        )


def _check_may_be_restored(history: OperatorHistory, place: ObjectStore) -> None:
    if PublishedObjects(place).epoch_directories():
        raise ConfigurationError(
            f"{place.url} has epochs already, complete or not, and a restore would mix them with "
            f"those of {history.url}. Move it away first, or name another place. If they are of a "
            "restore that was stopped, delete the stores of all operators of the query"
        )
    query_id, operator = place.url.rstrip("/").split("/")[-2:]
    if store_id(query_id, operator) != history.metadata.store_id:
        raise ConfigurationError(
            f"{place.url} is not where the query of {history.url} has its store: name "
            "<spark.cowstate.store>/<query id>/<operator> of that query, or "
            "<spark.cowstate.store>/<query id> for all its operators. To begin a new query with "
            f"this state, set spark.cowstate.restoreFrom to {history.url}"
        )


def _chosen_epoch(
    url: str, histories: Sequence[OperatorHistory], epoch: int | None, way_out: str
) -> int:
    """Return `epoch` after a check that all operators have the epoch. If `epoch` is None, return
    the newest epoch that all operators have."""
    held = epochs_of(histories)
    if epoch is None:
        return shared_epoch(url, histories, held, way_out)
    for history, versions in zip(histories, held.values(), strict=True):
        if epoch not in versions:
            raise history.absent(epoch, versions)
    return epoch


def _written(
    pairs: Sequence[tuple[OperatorHistory, ObjectStore]], epoch: int, *, is_restored: bool = False
) -> tuple[Savepoint, ...]:
    """Write the copies, in an order that never leaves an epoch with missing files: the metadata of
    all stores; then all files; then all barriers except the last barrier of each operator; then the
    last barriers; then the manifests. `is_restored`: see Barrier.restored.
    """
    targets = [CompletedCheckpointStore(place) for _, place in pairs]
    histories = [history for history, _ in pairs]
    for history, target in zip(histories, targets, strict=True):
        target.open(history.metadata)
    copies: list[list[Barrier]] = []
    for history, target in zip(histories, targets, strict=True):
        copy = OperatorCopy(history, CompletedCheckpointStore(history.store), target)
        barriers = map(copy.of_subtask, history.checkpoint_at(epoch).barriers)
        copies.append([replace(barrier, restored=is_restored) for barrier in barriers])
    for target, copied in zip(targets, copies, strict=True):
        for barrier in copied[:-1]:
            target.publish_barrier(barrier)
    for target, copied in zip(targets, copies, strict=True):
        target.publish_barrier(copied[-1])
    for target, copied in zip(targets, copies, strict=True):
        first = copied[0]
        completed = target.complete(first.epoch, first.run, first.parallelism)
        assert completed, "all barriers were published"
    return tuple(_finished(*pair, copied) for pair, copied in zip(pairs, copies, strict=True))


def _finished(
    history: OperatorHistory, place: ObjectStore, barriers: Sequence[Barrier]
) -> Savepoint:
    """Return the description of a finished copy. `barriers`: the barriers of the copy."""
    handles = [handle for barrier in barriers for handle in barrier.handles]
    return Savepoint(
        url=place.url,
        source=history.url,
        operator=history.metadata.operator,
        epoch=barriers[0].epoch,
        subtasks=len(barriers),
        entries=sum(handle.rows for handle in handles),
        bytes=bytes_of(handles),
    )
