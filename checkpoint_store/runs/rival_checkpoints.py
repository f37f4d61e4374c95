"""Compares the states that several runs left when all ran an epoch from the same base, and chooses
the runs that may count.

A processor that depends only on its state and its rows gives the same changes each time, also at
another parallelism. Then the epochs of the runs are equal, whichever run Spark committed. Spark
commits no epoch that lacks subtasks. So a run with only a part of the epoch does not count if
another run has the whole epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from checkpoint_store.epochs.checkpoint_summary import summary_of
from checkpoint_store.epochs.completed_checkpoint import CompletedCheckpoint
from checkpoint_store.epochs.operator_layout import EpochDirectory
from checkpoint_store.errors import CheckpointStoreError, PartialEpochError
from checkpoint_store.files.state_file_store import StateFileStore
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.objects.object_store import ObjectStore

# Returns a run's checkpoint at an epoch, None if the run published nothing at the epoch. Raises
# PartialEpochError.
Completed = Callable[[EpochDirectory], CompletedCheckpoint | None]
AreSame = Callable[[CompletedCheckpoint, CompletedCheckpoint], bool]


def whole_rivals(
    directories: Iterable[EpochDirectory], completed: Completed, are_same: AreSame
) -> list[EpochDirectory]:
    """The runs that completed the epoch, in the given order. Of runs with the same result, only the
    first is listed. If several runs are listed, nobody can tell which run counts. If the list is
    empty, no run published anything. `directories`: the runs of one epoch. Raises PartialEpochError
    if runs published only parts of the epoch (I5)."""
    whole: list[tuple[EpochDirectory, CompletedCheckpoint]] = []
    partial: PartialEpochError | None = None
    for directory in directories:
        try:
            checkpoint = completed(directory)
        except PartialEpochError as error:
            partial = partial or error
            continue
        if checkpoint is None or any(are_same(other, checkpoint) for _, other in whole):
            continue
        whole.append((directory, checkpoint))
    if not whole and partial is not None:
        raise partial
    return [directory for directory, _ in whole]


def are_same(store: ObjectStore, newer: CompletedCheckpoint, older: CompletedCheckpoint) -> bool:
    """True if two checkpoints of one epoch in `store` certainly hold the same state. False if a
    missing or damaged file prevents the comparison. May read the changes of the epoch, all at
    once."""
    if _around_changes(newer) != _around_changes(older):
        return False
    if [*map(_content, _changes(newer))] == [*map(_content, _changes(older))]:
        return True
    try:
        return _rows(store, newer) == _rows(store, older)
    except CheckpointStoreError:
        return False


def _rows(store: ObjectStore, checkpoint: CompletedCheckpoint) -> pa.Table | None:
    """The changes of all subtasks, by key group and key; None if there are no changes."""
    files = StateFileStore(store)
    batches = [
        batch for handle in _changes(checkpoint) for batch in files.read(handle, handle.key_groups)
    ]
    return pa.Table.from_batches(batches).combine_chunks() if batches else None


def _changes(checkpoint: CompletedCheckpoint) -> Iterator[StateHandle]:
    """The files with the epoch's changes. Snapshots written in the epoch are left out, because they
    hold the state of the base."""
    for barrier in checkpoint.barriers:
        for handle in barrier.handles:
            if handle.epoch == checkpoint.epoch and handle.kind == "changelog":
                yield handle


def _content(handle: StateHandle) -> tuple[object, ...]:
    return handle.checksum, handle.key_groups


def _around_changes(checkpoint: CompletedCheckpoint) -> tuple[object, ...]:
    """The parts of a checkpoint that must be equal in both runs, besides the rows of the changes.
    Operator state is compared subtask by subtask, because a change of parallelism distributes the
    items of operator state anew. The first snapshots of a run that started from nothing are
    compared, too, because they may hold state that the run has taken over from another store."""
    barriers = checkpoint.barriers
    held = [barrier.operator_state for barrier in barriers]
    has_base = all(barrier.base for barrier in barriers)
    first_files = [] if has_base else [barrier.handles for barrier in barriers]
    return (
        frozenset(barrier_id for barrier in barriers for barrier_id in barrier.base),
        frozenset(state for barrier in barriers for state in barrier.states),
        summary_of(barriers, is_contested=False).time,
        [None if each is None else each.checksum for each in held] if any(held) else [],
        [_content(h) for handles in first_files for h in handles if h.kind != "changelog"],
    )
