"""Folds the files of a table's state to fewer files, so that reads stay fast.

A commit adds a file for each task, and a reader applies all files of the state. So now and then the
newest files of the state are folded to one file. The fold stops at an older file that is much
larger than the newer files. A row is then rewritten about n = log(state / commit) times, and a
state has about n * `MergeBounds.files` files.

If the fold goes back to the first file, the result is the whole state: a snapshot without deleted
keys. If the table has a sequence, a snapshot keeps deleted keys, so that late rows stay late. If a
null in a row keeps the key's value, all files are folded or none, because a put alone does not show
whether a delete came before.

A commit folds at most `MergeBounds.bytes`. For a larger state, a job runs `compact_key_groups` for
ranges of key groups, on any machine, and publishes a TableCompaction.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_store.errors import CorruptObjectError, ObjectMissingError
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_file import KEY_GROUP_COLUMN, OP, PUT
from checkpoint_store.files.state_handle import StateFileKind, StateHandle
from checkpoint_store.object_names import COMPACTED
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.states.file_rows import files_of, flatten
from checkpoint_store.states.row_fold import (
    concat_rows,
    flat_schema,
    fold_rules,
    fold_state,
)
from checkpoint_store.states.state_history import StateShape
from checkpoint_store.tables.table_file_rows import file_rows
from checkpoint_store.tables.table_history import shape_of
from checkpoint_store.tables.table_store import TableFileWriter, TableStore
from checkpoint_store.tables.table_version import TableVersion

_SMALL_BYTES = 64 << 10
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MergeBounds:
    """Bounds of one fold: at least `files` files, and at most `bytes` bytes."""

    bytes: int
    files: int = 10


def first_to_merge(state: Sequence[StateHandle], bounds: MergeBounds, *, whole: bool) -> int:
    """The index of the first file to fold; the number of files if none are folded. A file is folded
    unless it is more than twice as large as all newer files together. `whole`: fold all files or
    none."""
    size, index = 0, len(state)
    while index:
        length = state[index - 1].length
        is_large = index < len(state) and length > 2 * max(size, _SMALL_BYTES)
        if size + length > bounds.bytes or is_large:
            break
        size += length
        index -= 1
    if len(state) - index < bounds.files or (whole and index):
        return len(state)
    return index


def merge_files(
    table: TableStore, version: TableVersion, bounds: MergeBounds
) -> tuple[StateHandle, ...]:
    """Fold some files of a version that is about to be committed. Return the files of the state
    after the fold. If a file is damaged or missing, return the files of the version unchanged,
    because the version is complete without folding."""
    metadata = table.metadata()
    assert metadata is not None, "the table was opened"
    shape = shape_of(metadata, version.schema_json)
    first = first_to_merge(version.state, bounds, whole=shape.ignores_nulls)
    if first == len(version.state):
        return version.state
    try:
        rows = folded(table, version.state[first:], shape, metadata.key_groups, whole=first == 0)
    except (CorruptObjectError, ObjectMissingError) as error:
        _log.warning("the files of version %d are not folded: %s", version.version, error)
        return version.state
    kind: StateFileKind = "changelog" if first else "snapshot"
    writer = TableFileWriter(COMPACTED, version.version, 0, 0)
    return (*version.state[:first], table.write_rows(kind, rows, writer))


def compact_key_groups(
    table: TableStore, version: TableVersion, key_groups: KeyGroupRange, part: int
) -> StateHandle:
    """Write some key groups of a version's state as one snapshot. `part`: the number of the range
    in the compaction."""
    metadata = table.metadata()
    assert metadata is not None, "the table was opened"
    shape = shape_of(metadata, version.schema_json)
    rows = folded(table, version.state, shape, key_groups, whole=True)
    writer = TableFileWriter(COMPACTED, version.version, part, 0)
    return table.write_rows("snapshot", rows, writer, key_groups)


def folded(
    table: TableStore,
    files: Sequence[StateHandle],
    shape: StateShape,
    key_groups: KeyGroupRange,
    *,
    whole: bool,
) -> pa.Table:
    """Fold the rows of files, and return rows in the form of a file. `whole`: the files begin with
    the first file of the state."""
    schema = flat_schema(shape)
    flat = flatten(shape, schema)
    needed = files_of(files, key_groups)
    read = in_parallel(lambda file: flat(table.read_rows(file, key_groups)), needed)
    rows = concat_rows(read, shape, schema)
    rows = fold_state(rows, fold_rules(shape, schema), keep_tombstones=True)
    if whole and not shape.sequenced:
        rows = rows.filter(pc.equal(rows[OP], PUT))
    order: Any = np.argsort(rows[KEY_GROUP_COLUMN].to_numpy(), kind="stable")
    return file_rows(rows.take(order), shape)
