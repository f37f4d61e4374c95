"""The rows of the files of a version, several files read at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.states.row_fold import concat_rows, flat_rows
from checkpoint_store.states.state_history import StateHistory, StateShape

Batches = Iterable[pa.RecordBatch]


def flatten(shape: StateShape, schema: pa.Schema) -> Callable[[Batches], pa.Table]:
    """How the batches of a file become one table with the columns of `row_fold.flat_rows`."""

    def flat(batches: Batches) -> pa.Table:
        return concat_rows([flat_rows(batch, shape, schema) for batch in batches], shape, schema)

    return flat


def files_of(files: Sequence[StateHandle], key_groups: KeyGroupRange) -> tuple[StateHandle, ...]:
    """Those that have rows of the key groups."""
    return tuple(file for file in files if file.key_groups.intersection(key_groups) is not None)


def read_files(
    history: StateHistory,
    files: Sequence[StateHandle],
    key_groups: KeyGroupRange,
    taken: Callable[[Batches], pa.Table],
) -> list[pa.Table]:
    """What is taken of each of the files that have rows of the key groups, in order."""
    needed = files_of(files, key_groups)
    return in_parallel(lambda handle: taken(history.read(handle, key_groups)), needed)
