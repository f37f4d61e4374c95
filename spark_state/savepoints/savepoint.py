"""Savepoints: all that an operator has after an epoch, as a store of its own.

A savepoint is full and canonical: rows that every backend reads, and no file of another store. So
it can be copied to any place, read by `format("cowstate")` and `open_store`, and named by
`spark.cowstate.restoreFrom`. It is a store with one epoch; its manifest is written last, so what
is not complete has no epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from checkpoint_store.files.state_handle import bytes_of
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.objects.store_outages import RETRY_SECONDS
from checkpoint_store.operator_stores import operators_at
from checkpoint_store.operators.completed_checkpoint_store import (
    CompletedCheckpointStore,
)
from checkpoint_store.operators.epoch_pins import EpochPins
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.operators.published_objects import PublishedObjects
from spark_state.errors import ConfigurationError
from spark_state.host.store_session import store_id
from spark_state.savepoints.operator_copy import OperatorCopy


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A savepoint that was written. `url`: where it is; `source`: the store that it is of;
    `entries`: values and elements; `bytes`: of its files."""

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

    `store`: the URL of the operator's store, or the directory of its query: then each operator gets
    a savepoint below `target`, under its name. `target`: a URL where nothing is yet. `epoch`: the
    one whose state it is, None for the newest of each operator. `storage_options` are fsspec's, for
    both. Retention leaves alone what is read.

    Raises ConfigurationError if something is at `target` already; NotAStoreError,
    NotAnOperatorError; VersionNotRetainedError if the epoch is not there; CorruptObjectError; the
    errors of object stores. Then `target` has no epoch.
    """
    pairs = _pairs(store, target, storage_options)
    for _, place in pairs:
        _check_nothing_there(place)
    return tuple(_written(history, place, epoch) for history, place in pairs)


def restore(
    savepoint: str, store: str, *, storage_options: Mapping[str, Any] | None = None
) -> tuple[Savepoint, ...]:
    """Write the store of an operator from a savepoint, so that its query goes on from there.

    `savepoint`: the URL of one, or of a directory with one for each operator; a store of an
    operator is taken, too. `store`: <spark.cowstate.store>/<query id>/<operator>, or
    <spark.cowstate.store>/<query id> for all operators; there is no epoch yet. The query must be
    the one that the savepoint is of, and its checkpoint must have the batch of the savepoint as its
    last one: a query of another id begins with a savepoint by spark.cowstate.restoreFrom.

    Raises ConfigurationError if the store has epochs, or is one of another query; and what
    `savepoint` raises. Then the store has no epoch.
    """
    pairs = _pairs(savepoint, store, storage_options)
    for history, place in pairs:
        _check_may_be_restored(history, place)
    return tuple(_written(history, place, None) for history, place in pairs)


def _pairs(
    source: str, target: str, storage_options: Mapping[str, Any] | None
) -> list[tuple[OperatorHistory, ObjectStore]]:
    """Each operator, and where its copy is to be."""
    histories = operators_at(source, storage_options, RETRY_SECONDS)
    own = open_object_store(source, storage_options).url.rstrip("/")
    pairs: list[tuple[OperatorHistory, ObjectStore]] = []
    for history in histories:
        url = history.url.rstrip("/")
        is_of_query = url != own
        place = f"{target.rstrip('/')}/{url.rpartition('/')[2]}" if is_of_query else target
        opened = open_object_store(place, storage_options)
        pairs.append((history, RetryingObjectStore(opened, RETRY_SECONDS)))
    return pairs


def _check_nothing_there(place: ObjectStore) -> None:
    held = [*(info.name for info in place.list("")), *place.list_directories("")]
    if held:
        raise ConfigurationError(
            f"{place.url} is not empty: it has {min(held)}. Name a place where nothing is; a "
            "savepoint that was not completed may be deleted"
        )


def _check_may_be_restored(history: OperatorHistory, place: ObjectStore) -> None:
    published = PublishedObjects(place)
    if published.manifests() or published.epoch_directories():
        raise ConfigurationError(
            f"{place.url} has epochs already, and a restore would mix them with those of "
            f"{history.url}. Move it away first, or name another place"
        )
    query_id, operator = place.url.rstrip("/").split("/")[-2:]
    if _is_query_id(query_id) and store_id(query_id, operator) != history.metadata.store_id:
        raise ConfigurationError(
            f"{history.url} is of another query or operator than {place.url}: to begin a new query "
            f"with its state, set spark.cowstate.restoreFrom to {history.url}"
        )


def _is_query_id(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _written(history: OperatorHistory, place: ObjectStore, epoch: int | None) -> Savepoint:
    versions = history.versions()
    chosen = max(versions, default=None) if epoch is None else epoch
    if chosen is None or chosen not in versions:
        raise history.absent(-1 if chosen is None else chosen, versions)
    # Retention never takes the newest epoch, so its pin comes in time. An older one may be gone
    # all the same: then reading it says so.
    with EpochPins(history.store).pinned(chosen):
        return _copied(history, place, chosen)


def _copied(history: OperatorHistory, place: ObjectStore, epoch: int) -> Savepoint:
    source = CompletedCheckpointStore(history.store)
    checkpoint = history.checkpoint_at(epoch)
    target = CompletedCheckpointStore(place)
    target.open(history.metadata)
    copy = OperatorCopy(history, source, target, checkpoint)
    barriers = [copy.of_subtask(barrier) for barrier in checkpoint.barriers]
    for barrier in barriers:
        target.publish_barrier(barrier)
    completed = target.complete(epoch, checkpoint.run, checkpoint.parallelism)
    assert completed is not None, "all barriers were published"
    handles = [handle for barrier in barriers for handle in barrier.handles]
    return Savepoint(
        url=place.url,
        source=history.url,
        operator=history.metadata.operator,
        epoch=epoch,
        subtasks=checkpoint.parallelism,
        entries=sum(handle.rows for handle in handles),
        bytes=bytes_of(handles),
    )
