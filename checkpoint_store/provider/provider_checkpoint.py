"""The state of a Spark query on the provider, read from the query's checkpoint without Spark.

    from checkpoint_store.objects.object_store import open_object_store
    from checkpoint_store.provider.provider_checkpoint import read_state

    table = read_state(open_object_store("s3://bucket/checkpoint"), batch=41)

Spark's commit log tells which batches are complete and, in checkpoint format 2, which attempt of
each store counts. All partitions of a store are read, one after the other; a partition without its
files is an error. If the checkpoint says that the state is in an object store, the files are read
from the object store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.provider.dealt_partitions import DealtPartitions
from checkpoint_store.provider.provider_errors import VersionNotFoundError
from checkpoint_store.provider.provider_file_names import StateId
from checkpoint_store.provider.provider_state import (
    PartitionReader,
    StorePartition,
    missing_batch,
)
from checkpoint_store.provider.provider_store import DEFAULT_STORE
from checkpoint_store.provider.spark_checkpoint import committed_batches, committed_ids
from checkpoint_store.provider.state_place import PlaceOpener, state_files

__all__ = ["committed_batches", "read_changes", "read_state"]


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
    VersionNotFoundError for a batch that is not committed or was deleted by retention;
    ObjectMissingError and CorruptObjectError for a file of the state; UnreadableStateError,
    UnsupportedFormatError.
    """
    after = _AfterBatch(checkpoint, batch, operator, store_name, store_options)
    partitions = after.partitions(after.dealt.after(batch))
    return pa.concat_tables([reader.state_table(state) for reader, state in partitions])


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
    known.
    """
    after = _AfterBatch(checkpoint, batch, operator, store_name, store_options)
    partitions = after.partitions(after.dealt.during(batch))
    return pa.concat_tables([reader.changes_table(state) for reader, state in partitions])


class _AfterBatch:
    def __init__(
        self,
        checkpoint: ObjectStore,
        batch: int,
        operator: int,
        store_name: str,
        store_options: Mapping[str, Any] | None,
    ) -> None:
        self._checkpoint, self._batch = checkpoint, batch
        self._operator, self._store_name = operator, store_name
        self._files = state_files(checkpoint, PlaceOpener(storage_options=store_options or {}))
        self._ids = committed_ids(checkpoint, batch, operator)
        self.dealt = DealtPartitions.of(checkpoint, self._files, operator, store_name)

    def partitions(self, count: int) -> Iterator[tuple[PartitionReader, StateId]]:
        """The first `count` partitions, each with its state after the batch."""
        named = self.dealt.after(self._batch)
        for number in range(count):
            where = StorePartition(self._operator, number, self._store_name)
            reader = PartitionReader(self._files, where, self.dealt.query)
            # The commit log has ids of the partitions after a rescale, not of the former
            # partitions.
            ids = self._ids if number < named else None
            try:
                state = reader.state_at(self._batch + 1, ids)
            except VersionNotFoundError as error:
                raise self._missed(where, error) from error
            yield reader, state

    def _missed(self, where: StorePartition, error: VersionNotFoundError) -> Exception:
        # A committed batch wrote the version. If later committed versions are there, retention has
        # deleted the version; if not, the file is lost. A version after `newest` is of a batch that
        # was begun and not committed.
        newest = committed_batches(self._checkpoint)[-1] + 1
        if any(self._batch + 1 < version <= newest for version in error.present):
            return error
        return missing_batch(self._files, where, self._batch)
