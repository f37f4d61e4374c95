"""A range of key groups restores from the right files in the right order."""

from __future__ import annotations

from dataclasses import replace

from checkpoint_store.epochs.completed_checkpoint import (
    Barrier,
    CompletedCheckpoint,
    Run,
)
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from tests.unit.checkpoint_store.files.test_document import BARRIER

RUN = Run(1, "run-a")


def handle(name: str, start: int, end: int) -> StateHandle:
    return StateHandle("changelog", name, 1, "00", KeyGroupRange(start, end), 1, 1)


def barrier(subtask: int, parallelism: int, *handles: StateHandle) -> Barrier:
    return replace(BARRIER, subtask=subtask, parallelism=parallelism, handles=handles)


def checkpoint(*barriers: Barrier) -> CompletedCheckpoint:
    return CompletedCheckpoint(1, RUN, len(barriers), barriers)


def test_a_shared_file_is_applied_for_each_old_subtask_in_its_own_place() -> None:
    # Subtask 0 has replaced the old file "a" by a snapshot; subtask 1 still needs "a". If a restore
    # applied "a" once for the whole range, the old rows of "a" would come after the snapshot's
    # rows.
    completed = checkpoint(
        barrier(0, 2, handle("snapshot", 0, 3)), barrier(1, 2, handle("a", 4, 7), handle("b", 4, 7))
    )
    assert completed.handles_for(KeyGroupRange(0, 7)) == (
        handle("snapshot", 0, 3),
        handle("a", 4, 7),
        handle("b", 4, 7),
    )


def test_a_handle_named_twice_is_given_once() -> None:
    completed = checkpoint(barrier(0, 2, handle("a", 0, 7)), barrier(1, 2, handle("a", 0, 7)))
    assert completed.handles_for(KeyGroupRange(0, 7)) == (handle("a", 0, 7),)
