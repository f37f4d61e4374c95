"""Operator state in an object store: one object per subtask, written whole and read whole.

Only the writer knows the meaning of the bytes. The store verifies the object when reading.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from checkpoint_store.epochs.completed_checkpoint import OperatorStateHandle
from checkpoint_store.epochs.operator_layout import EpochDirectory, OperatorStateName
from checkpoint_store.objects.named_object import read_verified
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.objects.parallel_requests import in_parallel


@dataclass(frozen=True, slots=True)
class OperatorStateStore:
    """The operator state in `store`. `unique`: see StateFileStore."""

    store: ObjectStore
    unique: Callable[[], str]

    def write(
        self,
        data: bytes,
        directory: EpochDirectory,
        subtask: int,
        attempt: int,
        broadcast: Mapping[str, str],
    ) -> OperatorStateHandle:
        """Write the operator state of a subtask; durable on return. `broadcast`: see
        OperatorStateHandle."""
        name = str(OperatorStateName(directory, subtask, attempt, self.unique()))
        self.store.put(name, data)
        return OperatorStateHandle(
            name=name,
            length=len(data),
            checksum=hashlib.sha256(data).hexdigest(),
            epoch=directory.epoch,
            broadcast=tuple(sorted(broadcast.items())),
        )

    def read_all(self, handles: Sequence[OperatorStateHandle]) -> list[bytes]:
        """Read and verify the handles' objects. Raises ObjectMissingError, CorruptObjectError."""
        return in_parallel(self._read, handles)

    def _read(self, handle: OperatorStateHandle) -> bytes:
        return read_verified(self.store, handle.name, handle.epoch, handle.length, handle.checksum)
