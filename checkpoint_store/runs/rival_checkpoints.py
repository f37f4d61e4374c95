"""Compares the states that two runs left when both ran an epoch from the same base.

A processor that depends only on its state and its rows gives the same changes each time, also at
another parallelism. Then the epochs of the two runs are equal, whichever run Spark committed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from checkpoint_store.epochs.checkpoint_summary import summary_of
from checkpoint_store.epochs.completed_checkpoint import CompletedCheckpoint
from checkpoint_store.errors import CheckpointStoreError
from checkpoint_store.files.state_file_store import StateFileStore
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.objects.object_store import ObjectStore


class RivalCheckpoints:
    """The comparison of checkpoints of one epoch in `store`."""

    def __init__(self, store: ObjectStore) -> None:
        self._files = StateFileStore(store)

    def are_same(self, newer: CompletedCheckpoint, older: CompletedCheckpoint) -> bool:
        """True if both checkpoints certainly hold the same state. False if a missing or damaged
        file prevents the comparison. May read the changes of the epoch, all at once."""
        if _around_changes(newer) != _around_changes(older):
            return False
        if [*map(_content, _changes(newer))] == [*map(_content, _changes(older))]:
            return True
        try:
            return self._rows(newer) == self._rows(older)
        except CheckpointStoreError:
            return False

    def _rows(self, checkpoint: CompletedCheckpoint) -> pa.Table | None:
        """The changes of all subtasks, by key group and key; None if there are no changes."""
        batches = [
            batch
            for handle in _changes(checkpoint)
            for batch in self._files.read(handle, handle.key_groups)
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
    Operator state is compared subtask by subtask, because another parallelism deals out its items
    again. The first snapshots of a run that started from nothing are compared, too, because they
    may hold state that the run has taken over from another store."""
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
