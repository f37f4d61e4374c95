"""An attempt of an epoch of a subtask: what was asked, the files it writes, the time it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pyarrow as pa

from checkpoint_store.files.database_contents import DatabaseContents
from checkpoint_store.files.key_group_range import KeyGroupRange, key_group_range_of_subtask
from checkpoint_store.files.sign_of_life import SignsOfLife
from checkpoint_store.files.state_handle import FilePart, StateFileKind, StateHandle
from checkpoint_store.operators.completed_checkpoint import OperatorStateHandle
from checkpoint_store.operators.completed_checkpoint_store import (
    CompletedCheckpointStore,
    StateFileWriter,
)
from spark_state.checkpointing.fence import Claim
from spark_state.host.epoch_request import CheckpointSettings, EpochRequest, EpochTask, OperatorSpec

Step = Literal["restore", "process", "write", "publish"]


@dataclass(frozen=True, slots=True)
class EpochAttempt:
    """`check` raises when the task is gone or fenced; `checkpoints`: where it writes."""

    request: EpochRequest
    claim: Claim
    checkpoints: CompletedCheckpointStore
    check: Callable[[], None]
    _seconds: dict[Step, float] = field(default_factory=dict)

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
        """A file of what the epoch, or the last ones up to it, changed; durable on return."""
        return self._write("changelog", rows, key_groups)

    def write_snapshot(self, rows: pa.Table, key_groups: KeyGroupRange) -> StateHandle:
        """See SnapshotFiles."""
        return self._write("snapshot", rows, key_groups)

    def write_database(
        self,
        folder: Path,
        contents: DatabaseContents,
        uploaded: Mapping[str, FilePart],
        key_groups: KeyGroupRange,
    ) -> StateHandle:
        """See SnapshotFiles."""
        return self.checkpoints.write_database(folder, contents, uploaded, self._writer(key_groups))

    def write_operator_state(
        self, data: bytes, broadcast: Mapping[str, str]
    ) -> OperatorStateHandle:
        """The object of the subtask's operator state, durable on return."""
        writer = self._writer(self._own_key_groups)
        return self.checkpoints.write_operator_state(data, writer, broadcast)

    def signs_of_life(self) -> SignsOfLife:
        """Signs that keep the files of the attempt from the orphan sweep."""
        return self.checkpoints.signs_of_life(self._writer(self._own_key_groups))

    @property
    def _own_key_groups(self) -> KeyGroupRange:
        return key_group_range_of_subtask(
            self.spec.max_parallelism, self.spec.parallelism, self.task.subtask
        )

    def _write(self, kind: StateFileKind, rows: pa.Table, key_groups: KeyGroupRange) -> StateHandle:
        return self.checkpoints.write_state(kind, rows, self._writer(key_groups))

    def _writer(self, key_groups: KeyGroupRange) -> StateFileWriter:
        return StateFileWriter(
            epoch=self.claim.epoch,
            subtask=self.task.subtask,
            run=self.claim.run,
            attempt=self.claim.attempt,
            key_groups=key_groups,
        )

    @contextmanager
    def timed(self, step: Step) -> Iterator[None]:
        """Count the time of a `with` for a step."""
        start = time.perf_counter()
        try:
            yield
        finally:
            taken = time.perf_counter() - start
            self._seconds[step] = self._seconds.get(step, 0.0) + taken

    def milliseconds(self, step: Step) -> int:
        """What the step has taken until now."""
        return round(1000 * self._seconds.get(step, 0.0))
