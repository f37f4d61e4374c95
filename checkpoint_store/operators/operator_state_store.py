"""Operator state in an object store: the bytes of one subtask, written whole and read whole.

What the bytes mean is known to whoever writes them. Here they are one object, which is verified
when it is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from checkpoint_store.errors import CorruptObjectError
from checkpoint_store.objects.named_object import read_named
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.operators.completed_checkpoint import OperatorStateHandle
from checkpoint_store.operators.operator_layout import EpochDirectory, OperatorStateName


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
        """What the handles refer to, verified. Raises ObjectMissingError, CorruptObjectError."""
        return in_parallel(self._read, handles)

    def _read(self, handle: OperatorStateHandle) -> bytes:
        data = read_named(self.store, handle.name, handle.epoch)
        if (len(data), hashlib.sha256(data).hexdigest()) != (handle.length, handle.checksum):
            problem = (
                f"its {len(data)} bytes are not the {handle.length} bytes with SHA-256 "
                f"{handle.checksum} that were written"
            )
            raise CorruptObjectError(self.store.url, handle.name, problem, handle.epoch)
        return data
