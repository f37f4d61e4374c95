"""An attempt of a subtask at an epoch. A newer attempt takes the subtask from an older attempt.
The names of an attempt's files contain the number of the attempt."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.epochs.operator_layout import EpochDirectory


@dataclass(frozen=True, slots=True, order=True)
class SubtaskAttempt:
    """An attempt of a subtask to write its part of an epoch. The greater of two attempts of a
    subtask wins (I9). `attempt`: Spark's task attempt id, which grows over the life of the
    application."""

    run: Run
    epoch: int
    subtask: int
    attempt: int

    @property
    def directory(self) -> EpochDirectory:
        """The directory of the attempt's files."""
        return EpochDirectory(self.epoch, self.run.number)
