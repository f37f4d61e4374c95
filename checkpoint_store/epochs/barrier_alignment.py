"""Selects an epoch's published barriers for the completed checkpoint. Pure.

Per subtask the latest attempt wins. A barrier with an older base epoch than another barrier of the
same epoch and run is from a zombie and is left out (I4).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from checkpoint_store.epochs.completed_checkpoint import Barrier, CompletedCheckpoint, Run


@dataclass(frozen=True, slots=True)
class Alignment:
    """The barriers that count for one epoch, run and parallelism, by subtask."""

    epoch: int
    run: Run
    parallelism: int
    barriers: dict[int, Barrier]

    def present(self) -> tuple[int, ...]:
        """The subtasks with a barrier."""
        return tuple(sorted(self.barriers))

    def missing(self) -> tuple[int, ...]:
        """The subtasks without a barrier."""
        return tuple(s for s in range(self.parallelism) if s not in self.barriers)

    def completed(self) -> CompletedCheckpoint | None:
        """The completed checkpoint, None while a subtask is missing."""
        if self.missing():
            return None
        ordered = tuple(self.barriers[subtask] for subtask in range(self.parallelism))
        return CompletedCheckpoint(self.epoch, self.run, self.parallelism, ordered)


def align(barriers: Iterable[Barrier], epoch: int, run: Run, parallelism: int) -> Alignment:
    """Align the barriers of this epoch, run and parallelism. Other barriers are left out."""
    mine = [
        barrier
        for barrier in barriers
        if (barrier.epoch, barrier.run, barrier.parallelism) == (epoch, run, parallelism)
    ]
    base_epoch = max((counted_base(barrier.base_epoch) for barrier in mine), default=-1)
    newest: dict[int, Barrier] = {}
    for barrier in sorted(mine, key=lambda b: (b.attempt, b.barrier_id)):
        if counted_base(barrier.base_epoch) == base_epoch:
            newest[barrier.subtask] = barrier
    return Alignment(epoch, run, parallelism, newest)


def align_last_writer(barriers: Sequence[Barrier]) -> Alignment | None:
    """Align the barriers of the last run, at the run's greatest parallelism. None if there are no
    barriers. `barriers`: barriers of a single epoch."""
    writers = ((barrier.epoch, barrier.run, barrier.parallelism) for barrier in barriers)
    writer = max(writers, default=None)
    return None if writer is None else align(barriers, *writer)


def counted_base(base_epoch: int | None) -> int:
    """A base epoch as a number to compare. Without a base epoch the number is -1, which is less
    than every epoch."""
    return -1 if base_epoch is None else base_epoch
