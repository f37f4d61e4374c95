"""A subtask's operator state in memory, and the object in the store with the same state.

A run's first epoch deals out the operator state of all subtasks of the older run: list items round
robin if the parallelism has changed, union items to every subtask. All attempts of the first epoch
start from the dealt-out state. The first epoch writes the subtask's own state as an object. From
then on, a host that takes over the subtask reads only this object.

    base of an older run    read objects of all subtasks, keep this subtask's part
    base of this run        read the object of this subtask

If an epoch does not change the state, its barrier names the object of the base again.
"""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_store.epochs.completed_checkpoint import CompletedCheckpoint, OperatorStateHandle
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from spark_state.operator_state.broadcast_checksum import check_broadcast_agrees
from spark_state.operator_state.operator_state_backend import (
    OperatorStateBackend,
    OperatorStateMark,
)
from spark_state.processor.rows import STATE_FORMS
from spark_state.subtasks.epoch_attempt import EpochAttempt
from spark_state.subtasks.epoch_start import EpochStart


@dataclass(frozen=True, slots=True)
class _Equal:
    """A moment at which the state had the same content as an object in the store. `handle`: the
    object, None if the state was empty; `mark`: brings the backend back to the moment."""

    handle: OperatorStateHandle | None
    mark: OperatorStateMark


class ResidentOperatorState:
    """The operator state of a subtask. Call `bring_to` first."""

    def __init__(self) -> None:
        self.backend = OperatorStateBackend(STATE_FORMS)
        self._start = self.backend.mark()
        self._base: OperatorStateHandle | None = None
        self._is_dealt = False
        self._sealed: _Equal | None = None
        self._before: _Equal | None = None

    def bring_to(self, base: EpochStart, attempt: EpochAttempt) -> None:
        """Bring the state to the start of the attempt's epoch. Raises BroadcastStateError if the
        subtasks of the base hold different broadcast states."""
        checkpoint, store = base.checkpoint, base.store
        if checkpoint is not None and checkpoint.summary.broadcast is None:
            handles = _handles(store.bases.whole(checkpoint))
            check_broadcast_agrees([{} if h is None else dict(h.broadcast) for h in handles])
        if base.lineage is not None and base.lineage.run == attempt.by.run:
            own = base.lineage.barrier_of(attempt.by.subtask).operator_state
            if not self._has(own):
                self._read(own, attempt)
        elif checkpoint is None or not checkpoint.summary.has_operator_state:
            self._deal((), attempt, store)
        else:
            self._deal(_handles(store.bases.whole(checkpoint)), attempt, store)
        self._start = self.backend.mark()

    def rollback(self) -> None:
        """Undo the changes of the running epoch."""
        self.backend.return_to(self._start)

    def written(self, attempt: EpochAttempt) -> OperatorStateHandle | None:
        """Write the state after the epoch, durable on return; None without operator state. An
        unchanged state is not written again."""
        if not (self._is_dealt or self.backend.has_changed_since(self._start)):
            return self._base
        snapshot = self.backend.snapshot()
        if not snapshot.names:
            return None
        checksums = self.backend.broadcast_checksums()
        return attempt.files.write_operator_state(snapshot.to_bytes(), checksums)

    def seal(self, handle: OperatorStateHandle | None) -> None:
        """End the epoch. `handle`: the object with the state after the epoch, see `written`."""
        self._before = None if self._is_dealt else _Equal(self._base, self._start)
        self._sealed = _Equal(handle, self.backend.mark())

    def _has(self, handle: OperatorStateHandle | None) -> bool:
        """Bring the state to the content of an object, without a read, and return True. This is
        possible if the state had this content at the end or at the start of the last sealed epoch.
        If not, do nothing and return False."""
        for equal in (self._sealed, self._before):
            if equal is not None and equal.handle == handle:
                self.backend.return_to(equal.mark)
                self._base, self._is_dealt = handle, False
                return True
        return False

    def _read(self, handle: OperatorStateHandle | None, attempt: EpochAttempt) -> None:
        snapshots = (
            [] if handle is None else attempt.checkpoints.files.read_operator_states([handle])
        )
        self._restored(OperatorStateBackend.restore(snapshots, forms=STATE_FORMS))
        self._base = handle

    def _deal(
        self,
        handles: tuple[OperatorStateHandle | None, ...],
        attempt: EpochAttempt,
        store: CompletedCheckpointStore,
    ) -> None:
        """Read the objects of all subtasks of an older run and keep this subtask's part."""
        present = [handle for handle in handles if handle is not None]
        read = iter(store.files.read_operator_states(present))
        nothing = OperatorStateBackend().snapshot().to_bytes()
        snapshots = [nothing if handle is None else next(read) for handle in handles]
        subtask, parallelism = attempt.by.subtask, attempt.spec.parallelism
        self._restored(OperatorStateBackend.restore(snapshots, subtask, parallelism, STATE_FORMS))
        self._base, self._is_dealt = None, bool(present)

    def _restored(self, backend: OperatorStateBackend) -> None:
        self.backend, self._is_dealt = backend, False
        self._sealed = self._before = None


def _handles(checkpoint: CompletedCheckpoint) -> tuple[OperatorStateHandle | None, ...]:
    return tuple(barrier.operator_state for barrier in checkpoint.barriers)
