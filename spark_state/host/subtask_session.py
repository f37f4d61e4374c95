"""One subtask of one operator: its state, from epoch to epoch.

An epoch goes: refuse what is fenced (I9); find the completed checkpoint it starts from (I5) and
bring the resident state there (I4, I6); run the processor; write the changelog; publish the
barrier; seal. Until the barrier is published every failure rolls the state back in O(changes), and
nothing of the attempt is ever named. Output leaves only afterwards (I3).
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkpoint_store.files.key_group_range import KeyGroupRange, key_group_range_of_subtask
from checkpoint_store.operators.completed_checkpoint import (
    Barrier,
    CompletedCheckpoint,
    Run,
    StateSchema,
)
from checkpoint_store.operators.completed_checkpoint_store import StateFileWriter
from spark_state.checkpointing.fence import Claim, check_claim
from spark_state.checkpointing.restore_plan import (
    Extend,
    Handles,
    Resident,
    Restore,
    UndoSealed,
    plan_restore,
)
from spark_state.checkpointing.snapshot_policy import (
    Restored,
    changelogs_by_key_group,
    part_due,
    snapshot_is_due,
)
from spark_state.errors import ConfigurationError, StateHostError
from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from spark_state.heap.heap_snapshot import HeapSnapshot
from spark_state.host.epoch_request import EpochRequest, EpochTask, OperatorSpec
from spark_state.host.maintenance import Maintenance
from spark_state.host.pending_snapshot import PendingSnapshot
from spark_state.host.store_session import StoreSession
from spark_state.keyed_state.state_rows import rows_by_key_group
from spark_state.processor.output_rows import OutputSpool
from spark_state.processor.processor_run import run_processor
from spark_state.processor.rows import STATE_FORMS
from spark_state.processor.schemas import state_descriptor

# An earlier attempt whose task is gone notices that after a call to the store, which may be tried
# again for a time of its own.
_BUSY_SECONDS = 300


class SubtaskSession:
    """The resident state of one subtask. One epoch runs at a time; a later request waits.

    `maintenance`: writes snapshots.
    """

    def __init__(
        self, request: EpochRequest, store: StoreSession, maintenance: Maintenance
    ) -> None:
        spec, task = request.spec, request.task
        self.key_groups = key_group_range_of_subtask(
            spec.max_parallelism, spec.parallelism, task.subtask
        )
        self._store = store
        self._maintenance = maintenance
        self._lock = threading.Lock()
        self._claims = threading.Lock()
        self._newest: Claim | None = None
        self._plan: tuple[Run, str] | None = None
        self._backend: HeapKeyedStateBackend | None = None
        self._resident: Resident | None = None
        self._restored: frozenset[str] = frozenset()
        self._published: tuple[Run, int] | None = None
        self._base_barriers: tuple[str, ...] = ()
        self._base_epoch: int | None = None
        self._snapshot: PendingSnapshot | None = None

    def accept(self, request: EpochRequest) -> Claim:
        """Check a request before its input is sent. Raises FencedError, ConfigurationError."""
        spec, task = request.spec, request.task
        run = self._store.run(task.run_id)
        claim = Claim(run, task.epoch, task.attempt)
        with self._claims:
            if self._plan is not None and self._plan[0] == run and self._plan[1] != spec.plan_id:
                raise ConfigurationError(
                    f"two operators of this query are called {spec.operator!r} and would share one "
                    "store; give each its own: transform_with_state(…, name=…)"
                )
            if claim == self._newest:
                raise ConfigurationError(
                    f"one Spark task ran operator {spec.operator!r} twice in epoch {task.epoch}: "
                    "its output is coalesced directly; call repartition(n) on it instead of "
                    "coalesce(n)"
                )
            check_claim(self._newest, claim, task.subtask)
            self._newest = claim
            self._plan = (run, spec.plan_id)
        return claim

    def run(
        self, request: EpochRequest, claim: Claim, table: pa.Table, check: Callable[[], None]
    ) -> OutputSpool:
        """Run one epoch over `table` and make it durable; returns its output.

        `check` raises when the task is gone. Whatever is raised, the state is as before.
        """
        busy_seconds = _BUSY_SECONDS + request.spec.checkpoints.store_retry_seconds
        if not self._lock.acquire(timeout=busy_seconds):
            raise StateHostError(
                f"subtask {request.task.subtask} still runs an earlier attempt after "
                f"{busy_seconds} s: it restores state, or its processor does not return"
            )
        try:
            self._check_fence(claim, request.task)
            return self._run_epoch(request, claim, table, check)
        finally:
            self._lock.release()

    def _check_fence(self, claim: Claim, task: EpochTask) -> None:
        check_claim(self._newest, claim, task.subtask)

    def _run_epoch(
        self, request: EpochRequest, claim: Claim, table: pa.Table, check: Callable[[], None]
    ) -> OutputSpool:
        spec, task = request.spec, request.task

        def check_all() -> None:
            check()
            self._check_fence(claim, task)

        backend, base = self._backend_at_base(request, claim, check_all)

        processor = pickle.loads(spec.processor.pickled_processor)
        try:
            spool = run_processor(spec.processor, processor, backend, table, check_all)
            try:
                handles = self._publish(request, claim, backend, base, check_all)
            except BaseException:
                spool.close()
                raise
        except BaseException:
            backend.rollback()
            raise
        backend.seal()
        self._resident = Resident(handles, before_sealed=base)
        self._published = (claim.run, task.epoch)
        try:
            self._after_barrier(request, claim, backend)
        except BaseException:
            spool.close()
            raise
        return spool

    def _backend_at_base(
        self, request: EpochRequest, claim: Claim, check: Callable[[], None]
    ) -> tuple[HeapKeyedStateBackend, Handles]:
        """The backend in the state that the task's epoch starts from, and that state's files."""
        spec = request.spec
        resident_epoch = None
        if self._published is not None and self._published[0] == claim.run:
            resident_epoch = self._published[1]
        checkpoint = self._store.base_of(request, claim.run, resident_epoch)
        target: Handles = () if checkpoint is None else checkpoint.handles_for(self.key_groups)
        self._remember_base(spec, checkpoint)
        plan = plan_restore(self._resident, target)
        if self._has_states_of_a_failed_epoch(spec, checkpoint):
            plan = Restore(target)
        backend = self._backend
        if isinstance(plan, Restore) or backend is None:
            backend, rows = self._restore(spec, checkpoint, target, check)
            self._begin_part_if_due(request, claim, backend, target, rows)
        else:
            # Until the plan is carried out the backend equals no list of files.
            self._resident = None
            if isinstance(plan, UndoSealed):
                backend.undo_sealed()
            elif isinstance(plan, Extend):
                self._announce(backend, spec, checkpoint)
                self._apply(backend, plan.handles, check)
        self._backend = backend
        self._resident = Resident(target, before_sealed=None)
        return backend, target

    def _remember_base(self, spec: OperatorSpec, checkpoint: CompletedCheckpoint | None) -> None:
        self._base_epoch = None if checkpoint is None else checkpoint.epoch
        self._base_barriers = ()
        if checkpoint is not None:
            barriers = checkpoint.barriers_for(self.key_groups, spec.max_parallelism)
            self._base_barriers = tuple(barrier.barrier_id for barrier in barriers)

    def _restore(
        self,
        spec: OperatorSpec,
        checkpoint: CompletedCheckpoint | None,
        handles: Handles,
        check: Callable[[], None],
    ) -> tuple[HeapKeyedStateBackend, npt.NDArray[np.int64]]:
        """The backend, and how many rows of changelogs were read for each key group."""
        self._backend = self._resident = None
        self._abandon_snapshot()
        backend = HeapKeyedStateBackend(self.key_groups, spec.processor.key_columns, STATE_FORMS)
        self._announce(backend, spec, checkpoint)
        rows = self._apply(backend, handles, check)
        self._restored = frozenset(handle.name for handle in handles)
        return backend, rows

    def _begin_part_if_due(
        self,
        request: EpochRequest,
        claim: Claim,
        backend: HeapKeyedStateBackend,
        handles: Handles,
        rows: npt.NDArray[np.int64],
    ) -> None:
        """After a restore of `handles`: hosts before this one may have ended before they named a
        snapshot, and so may this one."""
        if self._published is not None:
            return
        found = Restored(
            self.key_groups,
            changelogs_by_key_group(handles, self.key_groups),
            rows,
            np.array(backend.entries_by_key_group()),
        )
        part = part_due(found, request.spec.checkpoints.min_epochs_for_snapshot)
        if part is not None:
            self._begin_snapshot(request, claim, backend.snapshot(part), handles, is_awaited=True)

    def _snapshot_if_due(
        self,
        request: EpochRequest,
        claim: Claim,
        backend: HeapKeyedStateBackend,
        handles: Handles,
    ) -> None:
        """After the barrier of `handles`: a later one is to name a snapshot instead of them."""
        min_changelogs = request.spec.checkpoints.min_epochs_for_snapshot
        new = [handle for handle in handles if handle.name not in self._restored]
        if self._snapshot is None and snapshot_is_due(handles, new, len(backend), min_changelogs):
            snapshot = backend.snapshot()
            self._begin_snapshot(request, claim, snapshot, handles, is_awaited=False)

    def _begin_snapshot(
        self,
        request: EpochRequest,
        claim: Claim,
        snapshot: HeapSnapshot,
        handles: Handles,
        *,
        is_awaited: bool,
    ) -> None:
        """Begin to write a snapshot of the state that `handles` hold."""
        threads = self._maintenance.parts if is_awaited else self._maintenance.snapshots
        writer = self._writer(request, claim, snapshot.key_groups)
        self._snapshot = PendingSnapshot(
            snapshot,
            handles,
            lambda table: self._store.checkpoints.write_state("snapshot", table, writer),
            lambda job: threads.submit(self._store.url, job),
            request.spec.checkpoints.orphan_grace_seconds / 2,
            is_awaited,
        )

    def _announce(
        self,
        backend: HeapKeyedStateBackend,
        spec: OperatorSpec,
        checkpoint: CompletedCheckpoint | None,
    ) -> None:
        for state in self._stored_states(spec, checkpoint):
            backend.restore_descriptor(state_descriptor(state.name, state.kind, state.schema_json))

    def _stored_states(
        self, spec: OperatorSpec, checkpoint: CompletedCheckpoint | None
    ) -> list[StateSchema]:
        if checkpoint is None:
            return []
        barriers = checkpoint.barriers_for(self.key_groups, spec.max_parallelism)
        return [state for barrier in barriers for state in barrier.states]

    def _has_states_of_a_failed_epoch(
        self, spec: OperatorSpec, checkpoint: CompletedCheckpoint | None
    ) -> bool:
        """Whether the backend knows a state that neither the store nor the processor has."""
        if self._backend is None:
            return False
        expected = {(s.name, s.kind, s.schema_json) for s in self._stored_states(spec, checkpoint)}
        expected |= {(s.name, s.kind, s.schema_json) for s in spec.processor.states}
        return any(
            (s.name, s.kind, s.schema_json) not in expected for s in self._backend.descriptors
        )

    def _apply(
        self, backend: HeapKeyedStateBackend, handles: Handles, check: Callable[[], None]
    ) -> npt.NDArray[np.int64]:
        """Apply the files; returns how many rows of changelogs each key group had."""
        rows = np.zeros(len(self.key_groups), np.int64)
        for handle, batches in self._store.checkpoints.read_states(handles, self.key_groups):
            check()
            for batch in batches:
                backend.apply([batch])
                if handle.kind == "changelog":
                    rows += rows_by_key_group(batch, self.key_groups)
        return rows

    def _publish(
        self,
        request: EpochRequest,
        claim: Claim,
        backend: HeapKeyedStateBackend,
        base: Handles,
        check: Callable[[], None],
    ) -> Handles:
        """Write the changelog and publish the barrier; returns the files of the new state."""
        changes = backend.changes()
        handles = base
        if self._snapshot is not None:
            if self._snapshot.is_awaited:
                self._snapshot.wait(check)
            if self._snapshot.done():
                handles = self._snapshot.shorten(base)
                if handles == base:
                    self._snapshot = None  # else it is kept for another attempt of this epoch
        check()
        if changes.num_rows:
            writer = self._writer(request, claim, self.key_groups)
            changelog = self._store.checkpoints.write_state("changelog", changes, writer)
            handles = (*handles, changelog)
        check()
        self._store.checkpoints.publish_barrier(self._barrier(request, claim, backend, handles))
        return handles

    def _barrier(
        self,
        request: EpochRequest,
        claim: Claim,
        backend: HeapKeyedStateBackend,
        handles: Handles,
    ) -> Barrier:
        spec, task = request.spec, request.task
        return Barrier(
            barrier_id=uuid4().hex,
            epoch=task.epoch,
            subtask=task.subtask,
            parallelism=spec.parallelism,
            run=claim.run,
            attempt=claim.attempt,
            plan_id=spec.plan_id,
            base=self._base_barriers,
            base_epoch=self._base_epoch,
            handles=handles,
            states=tuple(
                StateSchema(state.name, state.kind, state.schema_json)
                for state in backend.descriptors
            ),
        )

    @staticmethod
    def _writer(request: EpochRequest, claim: Claim, key_groups: KeyGroupRange) -> StateFileWriter:
        return StateFileWriter(
            epoch=claim.epoch,
            subtask=request.task.subtask,
            run=claim.run,
            attempt=claim.attempt,
            key_groups=key_groups,
        )

    def _after_barrier(
        self, request: EpochRequest, claim: Claim, backend: HeapKeyedStateBackend
    ) -> None:
        spec, task = request.spec, request.task
        self._store.complete(task.epoch, claim.run, spec.parallelism)
        if task.subtask == 0:
            self._store.housekeep(spec, task.epoch)
        assert self._resident is not None
        self._snapshot_if_due(request, claim, backend, self._resident.handles)

    def _abandon_snapshot(self) -> None:
        if self._snapshot is not None:
            self._snapshot.abandon()
            self._snapshot = None
