"""The state of a Spark query that runs on the provider, read from its checkpoint without Spark.

    from checkpoint_store.objects.object_store import open_object_store
    from checkpoint_store.provider.provider_checkpoint import read_state

    table = read_state(open_object_store("s3://bucket/checkpoint"), batch=41)

Spark's commit log says which batches are complete and, in checkpoint format 2, which attempt of
each store counts. What Spark wrote of an operator says how many partitions its stores have: all of
them are read, one after the other, and one whose files are gone is missed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence, Set

import pyarrow as pa

from checkpoint_store.errors import (
    CorruptObjectError,
    ObjectMissingError,
    UnsupportedFormatError,
)
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.provider.provider_errors import (
    NotACheckpointError,
    StoreNotFoundError,
    VersionNotFoundError,
)
from checkpoint_store.provider.provider_state import (
    DEFAULT_STORE,
    StorePartition,
    read_partition_changes,
    read_partition_state,
)

_COMMITS = "commits"
_NEWEST_COMMIT_FORMAT = 3
_ENTRIES_OF_COMMIT = {"nextBatchWatermarkMs", "stateUniqueIds", "sinkMetadataMap"}
_ReadPartition = Callable[[ObjectStore, StorePartition, int, Set[str] | None], pa.Table]


def committed_batches(checkpoint: ObjectStore) -> list[int]:
    """The batches in Spark's commit log, rising; there is one at least.

    Raises NotACheckpointError if there is none.
    """
    names = (info.name.rpartition("/")[2] for info in checkpoint.list(_COMMITS))
    batches = sorted(int(name) for name in names if _is_number(name))
    if not batches:
        raise NotACheckpointError(checkpoint.url)
    return batches


def read_state(
    checkpoint: ObjectStore, batch: int, operator: int = 0, store_name: str = DEFAULT_STORE
) -> pa.Table:
    """All entries of a store after a batch: `key`, `value` (structs) and `partition_id`.

    A join has the stores left-keyToNumValues, left-keyWithIndexToValue and those of the right.

    Raises NotACheckpointError; StoreNotFoundError for an operator or a store that is not there;
    VersionNotFoundError for a batch that is not there; and the errors of `read_partition_state`.
    """
    return _read(checkpoint, batch, operator, store_name, read_partition_state)


def read_changes(
    checkpoint: ObjectStore, batch: int, operator: int = 0, store_name: str = DEFAULT_STORE
) -> pa.Table:
    """What a batch changed in a store: `change_type` ("update", "delete"), `key`, `value` (null for
    "delete") and `partition_id`, in the order of the changes within each partition.

    Raises what `read_state` does, and ChangesNotKnownError if only the state after the batch is
    there.
    """
    return _read(checkpoint, batch, operator, store_name, read_partition_changes)


def _read(
    checkpoint: ObjectStore, batch: int, operator: int, store_name: str, read: _ReadPartition
) -> pa.Table:
    ids = _committed_ids(checkpoint, batch, operator)
    operators = {number: _stores_of(checkpoint, number) for number in _numbers(checkpoint, "state")}
    stores = operators.get(operator, {})
    if store_name not in stores:
        present = tuple((number, tuple(names)) for number, names in operators.items())
        raise StoreNotFoundError(checkpoint.url, operator, store_name, present)
    parts = []
    for number in range(stores[store_name]):
        where = StorePartition(operator, number, store_name)
        try:
            parts.append(read(checkpoint, where, batch + 1, ids))
        except VersionNotFoundError as error:
            # A batch that is committed wrote it, and retention deletes only what is older. Later
            # versions may be there of a batch that was begun and not committed.
            newest = committed_batches(checkpoint)[-1] + 1
            if any(batch + 1 < version <= newest for version in error.present):
                raise
            name = f"{where.directory}/{batch + 1:019d}-*.changelog.arrow"
            raise ObjectMissingError(checkpoint.url, name, batch) from error
    return pa.concat_tables(parts)


def _stores_of(checkpoint: ObjectStore, operator: int) -> dict[str, int]:
    """The stores of an operator, by name, and how many partitions they have: as Spark wrote down
    when the query began, or, if an early release of Spark did not, as they are there.

    The files of the only store are in the partition's directory, those of several one below it.
    """
    directory = f"state/{operator}"
    name = f"{directory}/_metadata/metadata"
    try:
        lines = checkpoint.get(name).split(b"\n", 1)
    except ObjectMissingError:
        partitions = _numbers(checkpoint, directory)
        partition = f"{directory}/{min(partitions, default=0)}"
        files = _visible([info.name for info in checkpoint.list(partition)])
        named = [] if files else _visible(checkpoint.list_directories(partition))
        return dict.fromkeys(named or [DEFAULT_STORE], max(partitions, default=-1) + 1)
    try:
        infos = json.loads(lines[1])["stateStoreInfo"]
        stores = {str(store["storeName"]): int(store["numPartitions"]) for store in infos}
        if max(_numbers(checkpoint, directory), default=-1) >= max(stores.values()):
            raise ValueError(f"it says {stores}, and there are more partitions")
        return stores
    except (LookupError, TypeError, ValueError) as error:
        problem = f"not what Spark wrote of an operator: {error!r}"
        raise CorruptObjectError(checkpoint.url, name, problem) from error


def _visible(paths: Sequence[str]) -> list[str]:
    names = (path.rpartition("/")[2] for path in paths)
    return sorted(name for name in names if not name.startswith((".", "_")))


def _numbers(checkpoint: ObjectStore, directory: str) -> list[int]:
    """The subdirectories whose names are numbers, rising."""
    names = [path.rpartition("/")[2] for path in checkpoint.list_directories(directory)]
    return sorted(int(name) for name in names if _is_number(name))


def _committed_ids(checkpoint: ObjectStore, batch: int, operator: int) -> set[str] | None:
    """The ids of the operator's stores after a batch; None in checkpoint format 1.

    An id is drawn for each store and partition alone, so it needs no place.
    """
    name = f"{_COMMITS}/{batch}"
    try:
        lines = checkpoint.get(name).split(b"\n", 1)
    except ObjectMissingError as error:
        present = tuple(number + 1 for number in committed_batches(checkpoint))
        directory = f"state/{operator}"
        raise VersionNotFoundError(checkpoint.url, directory, batch + 1, present) from error
    try:
        version, commit = int(lines[0].removeprefix(b"v")), json.loads(lines[1])
        if version > _NEWEST_COMMIT_FORMAT:
            raise UnsupportedFormatError(checkpoint.url, name, version, _NEWEST_COMMIT_FORMAT)
        # A damaged entry must not look like one that is not there.
        if unknown := commit.keys() - _ENTRIES_OF_COMMIT:
            raise ValueError(f"unknown entries {', '.join(sorted(unknown))}")
        ids = commit.get("stateUniqueIds")
        if ids is None:
            return None
        return {unique for partition in ids[str(operator)] for unique in partition}
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CorruptObjectError(checkpoint.url, name, f"not a commit: {error!r}") from error


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()
