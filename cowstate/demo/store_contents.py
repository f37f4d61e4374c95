"""Reads the content of the flights job's store without Spark. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from checkpoint_store import object_names
from checkpoint_store.epochs.completed_checkpoint import CompletedCheckpoint
from checkpoint_store.epochs.published_objects import PublishedObjects
from checkpoint_store.files.state_file import OP, PUT
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore

_AFTER_ALL_EPOCHS = 2**62


@dataclass(frozen=True, slots=True)
class StoreContents:
    """Content of a store. keys: number of keys with state after the newest epoch. files, bytes: of
    all objects."""

    url: str
    newest_epoch: int
    completed_epochs: int
    keys: int
    files: int
    bytes: int


def store_contents(url: str, key_column: str) -> StoreContents:
    """List the store of an operator and read its newest completed checkpoint."""
    store = RetryingObjectStore(open_object_store(url))
    checkpoints = CompletedCheckpointStore(store)
    newest = checkpoints.latest_before(_AFTER_ALL_EPOCHS)
    assert newest is not None, f"{url} has no completed checkpoint"
    published = PublishedObjects(store)
    epochs = [str(directory) for directory in published.epoch_directories()]
    directories = ["", object_names.RUNS, object_names.BEGUN, object_names.MANIFESTS, *epochs]
    objects = list(chain.from_iterable(store.list(directory) for directory in directories))
    return StoreContents(
        url=url,
        newest_epoch=newest.epoch,
        completed_epochs=len({manifest.epoch for manifest in published.manifests()}),
        keys=_count_keys(checkpoints, newest, key_column),
        files=len(objects),
        bytes=sum(info.length for info in objects),
    )


def _count_keys(
    checkpoints: CompletedCheckpointStore, newest: CompletedCheckpoint, key_column: str
) -> int:
    """Apply the files of the checkpoint, oldest first, to a set of keys, and count the keys."""
    keys: set[str | None] = set()
    for barrier in newest.barriers:
        for handle in barrier.handles:
            for batch in checkpoints.files.read(handle, handle.key_groups):
                changes = zip(batch[key_column].to_pylist(), batch[OP].to_pylist(), strict=True)
                for key, change in changes:
                    (keys.add if change == PUT else keys.discard)(key)
    return len(keys)
