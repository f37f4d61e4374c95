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

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.provider.provider_history import ProviderHistory
from checkpoint_store.provider.provider_store import DEFAULT_STORE, ProviderStore
from checkpoint_store.provider.spark_checkpoint import committed_batches
from checkpoint_store.provider.state_place import PlaceOpener

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
    VersionNotRetainedError for a batch that is not committed or was deleted by retention;
    ObjectMissingError and CorruptObjectError for a file of the state; UnreadableStateError,
    UnsupportedFormatError.
    """
    history = _opened(checkpoint, operator, store_name, store_options)
    partitions = range(history.listed_with(batch).dealt.after(batch))
    states = history.states_of(partitions, batch)
    return pa.concat_tables([reader.state_table(state) for reader, state in states])


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
    history = _opened(checkpoint, operator, store_name, store_options)
    partitions = range(history.listed_with(batch).dealt.during(batch))
    states = history.states_of(partitions, batch)
    return pa.concat_tables([reader.changes_table(state) for reader, state in states])


def _opened(
    checkpoint: ObjectStore,
    operator: int,
    store_name: str,
    store_options: Mapping[str, Any] | None,
) -> ProviderHistory:
    committed_batches(checkpoint)  # raises NotACheckpointError
    opener = PlaceOpener(storage_options=store_options or {})
    return ProviderHistory.of(checkpoint, ProviderStore(operator, store_name), opener)
