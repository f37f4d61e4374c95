"""An attempt at an epoch of a subtask: request, written files, and time of each step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pyarrow as pa

from checkpoint_store.epochs.completed_checkpoint import OperatorStateHandle
from checkpoint_store.files.database_contents import DatabaseContents
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.sign_of_life import SignsOfLife
from checkpoint_store.files.state_handle import FilePart, StateHandle
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.operators.epoch_files import SubtaskAttempt
from spark_state.checkpointing.fence import Claim
from spark_state.subtasks.epoch_request import (
    CheckpointSettings,
    EpochRequest,
    EpochTask,
    OperatorSpec,
)

Phase = Literal["restore", "process", "write", "publish"]


@dataclass(frozen=True, slots=True)
class EpochAttempt:
    """An attempt at an epoch. `check` raises when the task is gone or fenced; `checkpoints`: the
    store for the attempt's files."""

    request: EpochRequest
    claim: Claim
    checkpoints: CompletedCheckpointStore
    check: Callable[[], None]
    _seconds: dict[Phase, float] = field(default_factory=dict)

    @property
    def spec(self) -> OperatorSpec:
        return self.request.spec

    @property
    def task(self) -> EpochTask:
        return self.request.task

    @property
    def settings(self) -> CheckpointSettings:
        return self.request.spec.checkpoints

    def write_changelog(self, rows: pa.Table, key_groups: KeyGroupRange) -> StateHandle:
        """Write the changes of the epoch, or of several epochs up to this epoch; durable on
        return."""
        return self.checkpoints.files.write("changelog", rows, key_groups, self._by)

    def write_snapshot(self, rows: pa.Table, key_groups: KeyGroupRange) -> StateHandle:
        """Write rows as a snapshot file, see RowFiles; durable on return."""
        return self.checkpoints.files.write("snapshot", rows, key_groups, self._by)

    def write_database(
        self,
        folder: Path,
        contents: DatabaseContents,
        uploaded: Mapping[str, FilePart],
        key_groups: KeyGroupRange,
    ) -> StateHandle:
        """Write a database, see SnapshotFiles; durable on return."""
        return self.checkpoints.files.write_database(
            folder, contents, uploaded, key_groups, self._by
        )

    def write_operator_state(
        self, data: bytes, broadcast: Mapping[str, str]
    ) -> OperatorStateHandle:
        """Write the object of the subtask's operator state, durable on return."""
        return self.checkpoints.files.write_operator_state(data, broadcast, self._by)

    def signs_of_life(self) -> SignsOfLife:
        """Return the signs of life for the attempt's files, against the orphan sweep."""
        return self.checkpoints.files.signs_of_life(self._by)

    @property
    def _by(self) -> SubtaskAttempt:
        claim = self.claim
        return SubtaskAttempt(claim.epoch, claim.run, self.task.subtask, claim.attempt)

    @contextmanager
    def timed(self, step: Phase) -> Iterator[None]:
        """Add the duration of a `with` block to a step."""
        start = time.perf_counter()
        try:
            yield
        finally:
            taken = time.perf_counter() - start
            self._seconds[step] = self._seconds.get(step, 0.0) + taken

    def milliseconds(self, step: Phase) -> int:
        """Return the time of the step so far, in milliseconds."""
        return round(1000 * self._seconds.get(step, 0.0))
