"""The state of a Spark query that runs on the provider, read from its checkpoint without Spark.

    from checkpoint_store.object_store import open_object_store
    from checkpoint_store.provider_checkpoint import read_state

    table = read_state(open_object_store("s3://bucket/checkpoint"), batch=41)

Spark's commit log says which batches are complete and, in checkpoint format 2, which attempt of
each store counts. All partitions are read, one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from checkpoint_store.errors import CorruptObjectError, ObjectMissingError, VersionNotFoundError
from checkpoint_store.object_store import ObjectStore
from checkpoint_store.provider_state import (
    DEFAULT_STORE,
    StorePartition,
    read_partition_changes,
    read_partition_state,
)

_COMMITS = "commits"


def committed_batches(checkpoint: ObjectStore) -> list[int]:
    """The batches in Spark's commit log, rising."""
    names = (info.name.rpartition("/")[2] for info in checkpoint.list(_COMMITS))
    return sorted(int(name) for name in names if _is_number(name))


def read_state(
    checkpoint: ObjectStore, batch: int, operator: int = 0, store_name: str = DEFAULT_STORE
) -> pa.Table:
    """All entries of a store after a batch: `key`, `value` (structs) and `partition_id`.

    A join has the stores left-keyToNumValues, left-keyWithIndexToValue and those of the right.

    Raises VersionNotFoundError for a batch, an operator or a store that is not there, and the
    errors of `read_partition_state`.
    """
    ids = _committed_ids(checkpoint, batch, operator)
    parts = [
        read_partition_state(checkpoint, where, batch + 1, ids)
        for where in _partitions(checkpoint, batch, operator, store_name)
    ]
    return pa.concat_tables(parts)


def read_changes(
    checkpoint: ObjectStore, batch: int, operator: int = 0, store_name: str = DEFAULT_STORE
) -> pa.Table:
    """What a batch changed in a store: `change_type` ("update", "delete"), `key`, `value` (null for
    "delete") and `partition_id`, in the order of the changes within each partition.

    Raises what `read_state` does.
    """
    ids = _committed_ids(checkpoint, batch, operator)
    parts = [
        read_partition_changes(checkpoint, where, batch + 1, ids)
        for where in _partitions(checkpoint, batch, operator, store_name)
    ]
    return pa.concat_tables(parts)


def _partitions(
    checkpoint: ObjectStore, batch: int, operator: int, store_name: str
) -> Sequence[StorePartition]:
    directory = f"state/{operator}"
    names = [path.rpartition("/")[2] for path in checkpoint.list_directories(directory)]
    numbers = sorted(int(name) for name in names if _is_number(name))
    if not numbers:
        raise VersionNotFoundError(checkpoint.url, directory, batch + 1)
    return [StorePartition(operator, number, store_name) for number in numbers]


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
        ids = json.loads(lines[1]).get("stateUniqueIds") or {}
        of_operator = ids.get(str(operator))
        if of_operator is None:
            return None
        return {unique for partition in of_operator for unique in partition}
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise CorruptObjectError(checkpoint.url, name, f"not a commit: {error!r}") from error


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()
