"""Reads the content of the flights job's store without Spark. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from checkpoint_store import object_names
from checkpoint_store.epochs.published_objects import PublishedObjects
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.state_reader import open_store


@dataclass(frozen=True, slots=True)
class StoreContents:
    """Content of a store. keys: number of keys with state after the newest epoch. files, bytes:
    number and size of all objects."""

    url: str
    newest_epoch: int
    completed_epochs: int
    keys: int
    files: int
    bytes: int


def store_contents(url: str) -> StoreContents:
    """List the store of an operator with one value state, and read the newest state."""
    store, reader = RetryingObjectStore(open_object_store(url)), open_store(url)
    published = PublishedObjects(store)
    epochs = [str(directory) for directory in published.epoch_directories()]
    directories = ["", object_names.RUNS, object_names.BEGUN, object_names.MANIFESTS, *epochs]
    objects = list(chain.from_iterable(store.list(directory) for directory in directories))
    return StoreContents(
        url=url,
        newest_epoch=reader.info().version,
        completed_epochs=len({manifest.epoch for manifest in published.manifests()}),
        keys=reader.read().num_rows,
        files=len(objects),
        bytes=sum(info.length for info in objects),
    )
