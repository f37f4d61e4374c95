"""Opener for the state at a URL: a table, a Python operator's store, or a query's checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkpoint_store import object_names
from checkpoint_store.epochs.checkpoint_codec import decode_metadata
from checkpoint_store.epochs.published_objects import PublishedObjects
from checkpoint_store.errors import NotAStoreError, ObjectMissingError, StateNotFoundError
from checkpoint_store.files.document import Source
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.objects.store_outages import RETRY_SECONDS
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.provider.provider_errors import StateChoiceError
from checkpoint_store.provider.provider_history import ProviderHistory
from checkpoint_store.provider.provider_store import ProviderStore
from checkpoint_store.provider.spark_checkpoint import listed_commits
from checkpoint_store.provider.state_place import OpenStore, PlaceOpener
from checkpoint_store.states.state_history import StateHistory
from checkpoint_store.tables.table_history import TableHistory
from checkpoint_store.tables.table_store import TableStore
from checkpoint_store.tables.table_version import ROW_STATE


def open_history(
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    state: str | ProviderStore | None = None,
    retry_seconds: float = RETRY_SECONDS,
) -> StateHistory:
    """Open the versions of the state at `url`: a table, one state of a Python operator's store, or
    one store in the checkpoint of a query on the provider.

    `state`: for an operator, the name of a state, or None if the operator has only one state. For a
    checkpoint, a ProviderStore, or None for the only store of operator 0. `retry_seconds`: a failed
    call to the object store is tried again for so many seconds.

    Raises NotAStoreError, whose message lists the stores below `url` if `url` is a root of stores;
    ObjectMissingError if the object that describes the store is gone; CorruptObjectError;
    StateNotFoundError, StoreNotFoundError, StateChoiceError; the errors of the object store.
    """
    store = RetryingObjectStore(open_object_store(url, storage_options), retry_seconds)
    return history_in(store, state, PlaceOpener(store.url, storage_options or {}, retry_seconds))


def history_in(
    store: ObjectStore,
    state: str | ProviderStore | None = None,
    open_place: OpenStore | None = None,
) -> StateHistory:
    """Open the versions of the state in an object store, as `open_history` does. `open_place`:
    opens the object store that a checkpoint names as the place of its state."""
    table = TableStore(store)
    metadata = table.metadata()
    if metadata is not None:
        name = _name_of(store, state)
        if name not in (None, ROW_STATE):
            raise StateNotFoundError(store.url, name, (ROW_STATE,))
        return TableHistory(table, metadata)
    try:
        data = store.get(object_names.STORE)
    except ObjectMissingError:
        if table.versions():
            raise ObjectMissingError(store.url, object_names.TABLE) from None
        published = PublishedObjects(store)
        if published.manifests() or published.epoch_directories():
            raise
        if listed_commits(store):
            if isinstance(state, str):
                raise StateChoiceError(store.url, f"state {state!r}") from None
            return ProviderHistory.of(store, state or ProviderStore(), open_place or PlaceOpener())
        raise NotAStoreError(store.url, _stores_below(store)) from None
    operator = decode_metadata(data, Source(store.url, object_names.STORE))
    return OperatorHistory(store, operator, _name_of(store, state))


def _name_of(store: ObjectStore, state: str | ProviderStore | None) -> str | None:
    """Return the name of a state. Raises StateChoiceError for a ProviderStore, which cannot choose
    a state of a table or of a Python operator."""
    if isinstance(state, ProviderStore):
        choice = f"store {state.name!r} of operator {state.operator_id}"
        raise StateChoiceError(store.url, choice)
    return state


def _stores_below(store: ObjectStore) -> tuple[str, ...]:
    """Return the stores up to two levels below the URL: `<root>/<query id>/<operator>`."""
    stores: list[str] = []
    for directory in (name.lstrip("/") for name in store.list_directories("")):
        candidates = (directory, *store.list_directories(directory))
        stores.extend(candidate for candidate in candidates if _is_store(store, candidate))
    return tuple(stores)


def _is_store(store: ObjectStore, directory: str) -> bool:
    """Return True if a table or an operator has objects in `directory`. This includes an operator's
    store without store.json, because opening the store tells the user that store.json is
    missing."""
    names = {info.name.rpartition("/")[2] for info in store.list(directory)}
    if names & {object_names.STORE, object_names.TABLE}:
        return True
    below = {name.rpartition("/")[2] for name in store.list_directories(directory)}
    return {object_names.RUNS, object_names.EPOCHS} <= below
