"""An attempt to run an epoch, from the accepted request to the files and the barrier."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from checkpoint_store.epochs.subtask_attempt import SubtaskAttempt
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.operators.epoch_files import AttemptFiles
from spark_state.subtasks.epoch_request import CheckpointSettings, EpochRequest, OperatorSpec

Phase = Literal["restore", "process", "write", "publish"]


@dataclass(frozen=True, slots=True)
class EpochAttempt:
    """An accepted request to run an epoch.

    `by`: the run, epoch, subtask and attempt number, for fencing; `checkpoints`: the store for the
    attempt's files; `check`: raises if the task is gone, or if a newer attempt has claimed the
    subtask.
    """

    request: EpochRequest
    by: SubtaskAttempt
    checkpoints: CompletedCheckpointStore
    check: Callable[[], None]
    _seconds: dict[Phase, float] = field(default_factory=dict)

    @property
    def spec(self) -> OperatorSpec:
        return self.request.spec

    @property
    def settings(self) -> CheckpointSettings:
        return self.request.spec.checkpoints

    @property
    def files(self) -> AttemptFiles:
        """The writer of the attempt's files."""
        return self.checkpoints.files.written_by(self.by)

    @contextmanager
    def timed(self, step: Phase) -> Iterator[None]:
        """Measure a `with` block, and add its duration to the time of `step`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            taken = time.perf_counter() - start
            self._seconds[step] = self._seconds.get(step, 0.0) + taken

    def milliseconds(self, step: Phase) -> int:
        """Return the time that `step` has taken so far, in milliseconds."""
        return round(1000 * self._seconds.get(step, 0.0))
