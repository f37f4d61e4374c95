"""The rows of the files of a version. Several files are read at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain, groupby, islice
from operator import attrgetter

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_file import KEY_GROUP_COLUMN
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.states.row_fold import concat_rows, flat_rows
from checkpoint_store.states.state_history import StateHistory, StateShape

Batches = Iterable[pa.RecordBatch]


def flatten(shape: StateShape, schema: pa.Schema) -> Callable[[Batches], pa.Table]:
    """Make a function that joins the batches of a file to a table with the columns of
    `row_fold.flat_rows`."""

    def flat(batches: Batches) -> pa.Table:
        return concat_rows([flat_rows(batch, shape, schema) for batch in batches], shape, schema)

    return flat


def files_of(files: Sequence[StateHandle], key_groups: KeyGroupRange) -> tuple[StateHandle, ...]:
    """The files with rows of the key groups."""
    return tuple(file for file in files if file.key_groups.intersection(key_groups) is not None)


def read_files(
    history: StateHistory,
    files: Sequence[StateHandle],
    key_groups: KeyGroupRange,
    taken: Callable[[Batches], pa.Table],
) -> list[pa.Table]:
    """Apply `taken` to each file with rows of the key groups, in order. Consecutive handles of one
    file, for several ranges of key groups, are read once and make one table."""
    (tables,) = read_files_of_each(history, [files], key_groups, taken)
    return tables


def read_files_of_each(
    history: StateHistory,
    versions: Iterable[Sequence[StateHandle]],
    key_groups: KeyGroupRange,
    taken: Callable[[Batches], pa.Table],
) -> list[list[pa.Table]]:
    """Apply `taken` to the files of several versions: for each version, to each file with rows of
    the key groups, in order. All files are read at once."""
    # Consecutive handles of one file together.
    pieces = [
        [tuple(handles) for _, handles in groupby(files_of(files, key_groups), attrgetter("name"))]
        for files in versions
    ]
    read = in_parallel(
        lambda handles: taken(_read_pieces(history, handles, key_groups)),
        chain.from_iterable(pieces),
    )
    tables = iter(read)
    return [[*islice(tables, len(of_version))] for of_version in pieces]


def _read_pieces(
    history: StateHistory, pieces: Sequence[StateHandle], key_groups: KeyGroupRange
) -> Batches:
    if len(pieces) == 1:
        return history.read(pieces[0], key_groups)
    first = min(handle.key_groups.start for handle in pieces)
    last = max(handle.key_groups.end for handle in pieces)
    whole = replace(pieces[0], key_groups=KeyGroupRange(first, last))
    wanted = pa.array([group for handle in pieces for group in handle.key_groups], pa.int32())
    return (
        batch.filter(pc.is_in(batch.column(KEY_GROUP_COLUMN), value_set=wanted))
        for batch in history.read(whole, key_groups)
    )
