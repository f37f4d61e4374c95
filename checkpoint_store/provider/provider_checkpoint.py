"""The state of a Spark query on the provider, read from the query's checkpoint without Spark.

    from checkpoint_store.objects.object_store import open_object_store
    from checkpoint_store.provider.provider_checkpoint import read_state

    table = read_state(open_object_store("s3://bucket/checkpoint"), batch=41)

Spark's commit log tells which batches are complete and, in checkpoint format 2, which attempt of
each store counts. All partitions of a store are read, one after the other; a partition without its
files is an error. If the checkpoint says that the state is in an object store, the files are read
there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

import pyarrow as pa

from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.provider.dealt_partitions import DealtPartitions
from checkpoint_store.provider.provider_errors import VersionNotFoundError
from checkpoint_store.provider.provider_state import (
    StorePartition,
    missing_batch,
    read_partition_changes,
    read_partition_state,
)
from checkpoint_store.provider.provider_store import DEFAULT_STORE
from checkpoint_store.provider.query_partitions import QueryPartitions
from checkpoint_store.provider.spark_checkpoint import committed_batches, committed_ids
from checkpoint_store.provider.state_place import PlaceOpener, state_files

__all__ = ["committed_batches", "read_changes", "read_state"]

_ReadPartition = Callable[
    [ObjectStore, StorePartition, int, Set[str] | None, QueryPartitions | None], pa.Table
]


def read_state(
    checkpoint: ObjectStore,
    batch: int,
    operator: int = 0,
    store_name: str = DEFAULT_STORE,
    store_options: Mapping[str, Any] | None = None,
) -> pa.Table:
    """Read all entries of a store after a batch: `key`, `value` (structs) and `partition_id`.

    `store_options`: fsspec options for the object store, if the state is in an object store. A join
    has the stores left-keyToNumValues, left-keyWithIndexToValue, right-keyToNumValues and
    right-keyWithIndexToValue.

    Raises NotACheckpointError; StoreNotFoundError for an operator or a store that does not exist;
    VersionNotFoundError for a batch that is not there; and the errors of `read_partition_state`.
    """
    files = state_files(checkpoint, PlaceOpener(storage_options=store_options or {}))
    after = _AfterBatch(checkpoint, files, batch, (operator, store_name))
    return after.read(after.dealt.after(batch), read_partition_state)


def read_changes(
    checkpoint: ObjectStore,
    batch: int,
    operator: int = 0,
    store_name: str = DEFAULT_STORE,
    store_options: Mapping[str, Any] | None = None,
) -> pa.Table:
    """Read the changes of a batch in a store: `change_type` ("update", "delete"), `key`, `value`
    (null for "delete") and `partition_id`, in the order of the changes within each partition.

    Raises the errors of `read_state`, and ChangesNotKnownError if only the state after the batch is
    there.
    """
    files = state_files(checkpoint, PlaceOpener(storage_options=store_options or {}))
    after = _AfterBatch(checkpoint, files, batch, (operator, store_name))
    return after.read(after.dealt.during(batch), read_partition_changes)


class _AfterBatch:
    def __init__(
        self, checkpoint: ObjectStore, files: ObjectStore, batch: int, store: tuple[int, str]
    ) -> None:
        self._checkpoint, self._files, self._batch = checkpoint, files, batch
        self._operator, self._store_name = store
        self._ids = committed_ids(checkpoint, batch, self._operator)
        self.dealt = DealtPartitions.of(checkpoint, files, *store)

    def read(self, partitions: int, read: _ReadPartition) -> pa.Table:
        """Read the first `partitions` partitions with `read`, and join the rows."""
        named = self.dealt.after(self._batch)
        parts = []
        for number in range(partitions):
            where = StorePartition(self._operator, number, self._store_name)
            # The commit log has ids of the partitions after a rescale, not of the former
            # partitions.
            ids = self._ids if number < named else None
            try:
                parts.append(read(self._files, where, self._batch + 1, ids, self.dealt.query))
            except VersionNotFoundError as error:
                raise self._missed(where, error) from error
        return pa.concat_tables(parts)

    def _missed(self, where: StorePartition, error: VersionNotFoundError) -> Exception:
        # A committed batch wrote the version. If later committed versions are there, retention has
        # deleted the version; if not, the file is lost. A version after `newest` is of a batch that
        # was begun and not committed.
        newest = committed_batches(self._checkpoint)[-1] + 1
        if any(self._batch + 1 < version <= newest for version in error.present):
            return error
        return missing_batch(self._files, where, self._batch)
