"""A subtask of an operator, from epoch to epoch.

The steps of an epoch:

    1  refuse a fenced request (I9)
    2  find the completed checkpoint that the epoch starts from (I5), and bring the resident state
       there (I4, I6)
    3  run the processor
    4  write the changelog
    5  publish the barrier
    6  seal the state, and send the output (I3)

Until the barrier is published, a failure rolls the state back in O(changes), and no barrier ever
names a file of the attempt.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from uuid import uuid4

import pyarrow as pa

from checkpoint_store.epochs.completed_checkpoint import (
    Barrier,
    OperatorStateHandle,
    Run,
    StateSchema,
)
from checkpoint_store.epochs.epoch_report import EpochReport
from checkpoint_store.files.key_group_range import key_group_range_of_subtask
from checkpoint_store.files.state_handle import bytes_of
from spark_state.checkpointing.fence import Claim, check_claim
from spark_state.checkpointing.restore_plan import Handles, Restore
from spark_state.errors import ConfigurationError, StateHostError
from spark_state.keyed_state.keyed_state_snapshot import KeyedStateSnapshot
from spark_state.keyed_state.state_rows import number_of_puts, rows_by_key_group
from spark_state.processor.input.spilled_rows import SpilledRows
from spark_state.processor.output_rows import OutputPlace, OutputSpool
from spark_state.processor.processor_run import Backends, run_processor
from spark_state.state_descriptor import StateDescriptor
from spark_state.subtasks.arrival import Arrival
from spark_state.subtasks.epoch_attempt import EpochAttempt
from spark_state.subtasks.epoch_request import EpochRequest, EpochTask
from spark_state.subtasks.maintenance import Maintenance
from spark_state.subtasks.received_input import ReceivedInput
from spark_state.subtasks.resident_operator_state import ResidentOperatorState
from spark_state.subtasks.resident_state import EpochStart, ResidentState
from spark_state.subtasks.running_epoch import RunningEpoch
from spark_state.subtasks.store_session import PublishedEpoch, StoreSession
from spark_state.subtasks.subtask_backends import Backend, SubtaskBackends, local_root
from spark_state.subtasks.subtask_snapshots import SubtaskSnapshots
from spark_state.subtasks.unnamed_files import UnnamedFiles

# An earlier attempt notices the end of its task only between calls to the store. The time for
# repeating a failing call comes on top.
_BUSY_SECONDS = 300


@dataclass(frozen=True, slots=True)
class DurableEpoch:
    """An epoch whose barrier is published. `output`: to be closed by the caller."""

    output: OutputSpool
    report: EpochReport


class HungSubtaskError(StateHostError):
    """An earlier attempt of a subtask neither returns nor can be interrupted: only the end of the
    process frees the subtask. The state of a host is a cache, so nothing is lost."""


class SubtaskSession:
    """A subtask and its resident state. One epoch runs at a time; a later request waits.

    `maintenance`: threads that write snapshots; `backends`: makes the backend of the state.
    """

    def __init__(
        self,
        request: EpochRequest,
        store: StoreSession,
        maintenance: Maintenance,
        backends: SubtaskBackends,
    ) -> None:
        spec, task = request.spec, request.task
        self.key_groups = key_group_range_of_subtask(
            spec.max_parallelism, spec.parallelism, task.subtask
        )
        self.state = ResidentState(self.key_groups, backends)
        self.operator_state = ResidentOperatorState()
        self.snapshots = SubtaskSnapshots(store.url, self.key_groups, maintenance)
        self._store = store
        self._backends = backends
        self._memory = backends.memory
        self._lock = threading.Lock()
        self._store_url = request.store_url
        self._is_closed = False
        self._claims = threading.Lock()
        self._newest: Claim | None = None
        self._plan: tuple[Run, str] | None = None
        self._published: PublishedEpoch | None = None
        self._taken_over: KeyedStateSnapshot | None = None
        self._last_publish_ms: int | None = None
        self._maintenance = maintenance
        self._unnamed: UnnamedFiles | None = None
        self._running: RunningEpoch | None = None

    def accept(self, request: EpochRequest) -> Claim:
        """Check a request before the task sends input. Raises FencedError, ConfigurationError."""
        spec, task = request.spec, request.task
        run = self._store.run(task)
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

    def receive(self, request: EpochRequest) -> ReceivedInput:
        """Return the place where the input of an epoch arrives."""
        share = self._memory.share_of_input(request.spec)
        return ReceivedInput(request.spec.processor.run_plan, share, str(local_root(request)))

    def run(
        self,
        request: EpochRequest,
        claim: Claim,
        rows: pa.Table | SpilledRows,
        check: Callable[[], None],
    ) -> DurableEpoch:
        """Run an epoch over the rows and make the epoch durable.

        `check` raises when the task is gone. After any error the state is as before. Raises
        HungSubtaskError if an earlier attempt does not return.
        """
        busy_seconds = _BUSY_SECONDS + request.spec.checkpoints.store_retry_seconds
        if not self._lock.acquire(timeout=busy_seconds):
            raise HungSubtaskError(self._waited_in_vain(request, busy_seconds))
        self._running = RunningEpoch(request)
        try:
            self._check_fence(claim, request.task)
            return self._run_epoch(self._attempt(request, claim, check), rows)
        finally:
            self._running = None
            self._lock.release()
            self._give_up_if_closed()

    def _waited_in_vain(self, request: EpochRequest, seconds: float) -> str:
        running, task = self._running, request.task
        doing = "" if running is None else f": {running.described()}"
        return (
            f"subtask {task.subtask} does not get to epoch {task.epoch}, although it has waited "
            f"for {seconds:.0f} s{doing}. The state host ends now, and an attempt after this one "
            f"restores the state from {self._store_url} in a new host"
        )

    def close(self) -> None:
        """Release the state; the store still has all state. A running epoch releases the state at
        the end: nobody waits for a processor of an older run."""
        self._is_closed = True
        self._give_up_if_closed()

    def show_alive(self) -> None:
        """Protect files that no barrier names yet from the orphan sweep, if a sign of life is
        due."""
        unnamed = self._unnamed
        if unnamed is not None:
            unnamed.show_alive(lambda job: self._maintenance.signs.submit(self._store_url, job))
        self.snapshots.show_alive()

    def give_up_state(self) -> bool:
        """Release the state's memory on the heap; return True if there was any. The next epoch
        reads the state from the store. Does nothing while an epoch runs, or while a snapshot with
        the state is being written."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if not self.state.memory.bytes or not self.snapshots.let_go():
                return False
            self.state.close()
            return True
        finally:
            self._lock.release()
            self._give_up_if_closed()

    def _give_up_if_closed(self) -> None:
        if self._is_closed and self._lock.acquire(blocking=False):
            try:
                self.state.close()
                self._backends.release_copies(self._store_url, self.key_groups)
            finally:
                self._lock.release()

    def _check_fence(self, claim: Claim, task: EpochTask) -> None:
        check_claim(self._newest, claim, task.subtask)

    def _attempt(
        self, request: EpochRequest, claim: Claim, check: Callable[[], None]
    ) -> EpochAttempt:
        def check_all() -> None:
            check()
            self._check_fence(claim, request.task)

        return EpochAttempt(request, claim, self._store.checkpoints, check_all)

    def _run_epoch(self, attempt: EpochAttempt, rows: pa.Table | SpilledRows) -> DurableEpoch:
        with attempt.timed("restore"):
            base = self._bring_to_base(attempt)
        self._taken_over = None if base.other_store is None else self.state.backend.snapshot()
        try:
            return self._run_from(attempt, base, rows)
        finally:
            if self._taken_over is not None:
                self._taken_over.release()

    def _run_from(
        self, attempt: EpochAttempt, base: EpochStart, rows: pa.Table | SpilledRows
    ) -> DurableEpoch:
        spec = attempt.spec.processor
        place = OutputPlace(
            self._memory.share_of_output(attempt.spec), str(local_root(attempt.request))
        )
        running = self._running
        assert running is not None
        backends = Backends(
            self.state.backend, self.operator_state.backend, place, call=running.call
        )
        try:
            with attempt.timed("process"):
                arrival = Arrival.of(rows, spec.run_plan, base.times)
                processor = spec.processor()
                running.processor, running.backend = type(processor).__name__, backends.keyed
                inputs, time = arrival.inputs, arrival.time
                check = self._check_of_run(attempt)
                spool = run_processor(spec, processor, backends, inputs, time, check)
        except BaseException:
            running.call.end()
            self._rollback()
            raise
        try:
            deleted = backends.dropped.union(state.name for state in spec.deleted_states)
            self._unnamed = UnnamedFiles(attempt, self._maintenance.clock)
            report = self._make_durable(attempt, base, arrival, spool.rows, len(deleted))
        except BaseException:
            spool.close()
            raise
        finally:
            self._unnamed = None
        return DurableEpoch(spool, report)

    def _check_of_run(self, attempt: EpochAttempt) -> Callable[[], None]:
        """Return the check for the processor's run: task, fence, and memory if there is a limit."""
        if attempt.spec.max_memory_mb is None:
            return attempt.check
        check_memory = self.state.memory.now_and_then(self.state.backend, attempt.spec)

        def check() -> None:
            attempt.check()
            check_memory()

        return check

    def _rollback(self) -> None:
        self.state.backend.rollback()
        self.operator_state.rollback()
        self.state.memory.measure_again(self.state.backend)

    def _bring_to_base(self, attempt: EpochAttempt) -> EpochStart:
        """Bring the resident state to the start of the attempt's epoch."""
        run, spec = attempt.claim.run, attempt.spec
        published = self._published
        if published is not None and published.barrier.run != run:
            published = None
        checkpoint = self._store.base_of(attempt.request, run, published)
        base = EpochStart.of(checkpoint, self.key_groups, spec.max_parallelism)
        other = None if checkpoint is not None else self._store.restored_from(attempt.request)
        if other is not None:
            base = EpochStart.of_other_store(*other, self.key_groups, spec.max_parallelism)
        plan = self.state.plan(base, spec)
        if isinstance(plan, Restore):
            self.snapshots.begin_anew(base.handles)
        self.snapshots.note_rows(self.state.bring_to(base, plan, attempt))
        # A subtask that has published before needs no part: its run goes on, and a later barrier
        # names a snapshot from the background. State from another store needs no part either:
        # _written writes the whole state to this store.
        if isinstance(plan, Restore) and self._published is None and other is None:
            self.snapshots.begin_part(base.handles, attempt, self.state.backend)
            if self.state.backend.has_failed():
                self.state.bring_to(base, Restore(base.handles), attempt)
        taken_over = checkpoint if other is None else other[0]
        self.operator_state.bring_to(taken_over, attempt, base.other_store)
        return base

    def _make_durable(
        self,
        attempt: EpochAttempt,
        base: EpochStart,
        arrival: Arrival,
        rows_out: int,
        states_deleted: int,
    ) -> EpochReport:
        """Write the changes, publish the barrier and seal; or roll back."""
        backend = self.state.backend
        try:
            self.state.memory.check(backend, attempt.spec)
            changes = backend.changes()
            with attempt.timed("write"):
                handles = self._written(attempt, base.handles, changes)
                operator_state = self.operator_state.written(attempt)
            puts = number_of_puts(changes)
            report = EpochReport(
                rows_in=arrival.rows_in,
                rows_out=rows_out,
                changed=puts,
                removed=changes.num_rows - puts,
                entries=len(backend),
                written_bytes=_new_bytes(base.handles, handles)
                + _bytes_of(attempt, operator_state),
                restore_ms=attempt.milliseconds("restore"),
                process_ms=attempt.milliseconds("process"),
                write_ms=attempt.milliseconds("write"),
                late_rows=arrival.late_rows,
                timers=backend.number_of_timers(),
                memory_bytes=backend.memory_bytes(),
                last_publish_ms=self._last_publish_ms,
                states_deleted=states_deleted,
                failed_snapshots=self.snapshots.failed,
            )
            with attempt.timed("publish"):
                barrier = replace(
                    _barrier(attempt, base, handles, backend, report),
                    time=arrival.subtask_time(backend.next_timer_ms()),
                    operator_state=operator_state,
                )
                self._publish(attempt, barrier)
        except BaseException:
            self._rollback()
            raise
        self.state.seal(handles, barrier.states)
        self.operator_state.seal(operator_state)
        self._published = PublishedEpoch(barrier, is_completed=False)
        with attempt.timed("publish"):
            self._after_barrier(attempt, barrier)
        self._last_publish_ms = attempt.milliseconds("publish")
        return replace(report, publish_ms=self._last_publish_ms)

    def _written(self, attempt: EpochAttempt, base: Handles, changes: pa.Table) -> Handles:
        """Return the files of the state after the epoch, all durable. State from another store is
        written here, too, because the other store may delete files at any time."""
        if self._taken_over is None:
            handles = self.snapshots.named(base, attempt)
        else:
            handles = self._taken_over.write(attempt)
        attempt.check()
        if changes.num_rows:
            changelog = attempt.write_changelog(changes, self.key_groups)
            rows = rows_by_key_group(changes, self.key_groups)
            self.snapshots.note_rows({changelog.name: rows})
            handles = (*handles, changelog)
        return handles

    def _publish(self, attempt: EpochAttempt, barrier: Barrier) -> None:
        attempt.check()
        assert self._unnamed is not None
        reason = self._unnamed.why_lost(attempt.settings)
        if reason is not None:
            raise StateHostError(
                f"epoch {attempt.task.epoch} is not published, for its files may have been deleted "
                f"as orphans: {reason}. Nothing was changed; Spark tries the task again"
            )
        attempt.checkpoints.publish_barrier(barrier)

    def _after_barrier(self, attempt: EpochAttempt, barrier: Barrier) -> None:
        spec, task, handles = attempt.spec, attempt.task, barrier.handles
        self._store.complete(barrier)
        self._published = PublishedEpoch(barrier, is_completed=True)
        if task.subtask == 0:
            self._store.housekeep(spec, task.epoch)
        self.snapshots.begin_if_due(handles, attempt, self.state.backend)


def _barrier(
    attempt: EpochAttempt,
    base: EpochStart,
    handles: Handles,
    backend: Backend,
    report: EpochReport,
) -> Barrier:
    """Return the barrier of the epoch, without time and operator state."""
    return Barrier(
        barrier_id=uuid4().hex,
        epoch=attempt.task.epoch,
        subtask=attempt.task.subtask,
        parallelism=attempt.spec.parallelism,
        run=attempt.claim.run,
        attempt=attempt.claim.attempt,
        plan_id=attempt.spec.plan_id,
        base=base.barriers,
        base_epoch=base.epoch,
        base_run=base.run_number,
        handles=handles,
        states=_state_schemas(backend.descriptors, attempt, base),
        deleted_states=tuple(
            StateSchema(state.name, state.kind, state.schema_json, state.ttl_ms)
            for state in attempt.spec.processor.deleted_states
        ),
        report=report,
    )


def _state_schemas(
    descriptors: Iterable[StateDescriptor], attempt: EpochAttempt, base: EpochStart
) -> tuple[StateSchema, ...]:
    """Return the states after an epoch. A state that the base in this store lacks begins with the
    epoch."""
    held = base.states if base.other_store is None else ()
    since = {state.name: state.since for state in held}
    return tuple(
        StateSchema(
            state.name,
            state.kind,
            state.schema_json,
            state.ttl_ms,
            since.get(state.name, attempt.task.epoch),
        )
        for state in descriptors
    )


def _new_bytes(before: Handles, after: Handles) -> int:
    """Return the bytes of the files in `after` without the files in `before`."""
    return bytes_of((*before, *after)) - bytes_of(before)


def _bytes_of(attempt: EpochAttempt, written: OperatorStateHandle | None) -> int:
    """Return the bytes of an object of operator state if this epoch wrote the object, otherwise
    0."""
    return 0 if written is None or written.epoch != attempt.task.epoch else written.length
