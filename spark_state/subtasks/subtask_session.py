"""A subtask of an operator, from epoch to epoch.

An epoch goes through the methods of SubtaskSession in this order:

    1  accept           refuse a fenced request (I9); an accepted request claims the subtask
       receive          take in the rows
       run              wait for the subtask's turn, and take steps 2 to 7
    2  _bring_to_base   find the completed checkpoint that the epoch starts from (I5), and bring the
                        resident state there (I4, I6)
    3  _process         run the processor
    4  _write           write the changelog
    5  _publish         publish the barrier
    6  _seal            end the epoch in the resident state; the output may be sent (I3)
    7  _after_barrier   complete the epoch; the next epoch waits for this step, the task need not

If a step before the publication fails, the state is rolled back in O(changes), and no barrier ever
names a file of the attempt. Once the barrier is published, the epoch is durable: even if step 7
fails or never runs, the next epoch finds the barriers of all subtasks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from checkpoint_store.epochs.completed_checkpoint import Barrier
from checkpoint_store.epochs.epoch_report import EpochReport
from checkpoint_store.epochs.subtask_attempt import SubtaskAttempt
from checkpoint_store.files.key_group_range import key_group_range_of_subtask
from checkpoint_store.objects.parallel_requests import in_parallel
from spark_state.checkpointing.fence import check_newest
from spark_state.checkpointing.restore_plan import Restore
from spark_state.errors import ConfigurationError, StateHostError
from spark_state.keyed_state.full_snapshot import KeyedStateSnapshot
from spark_state.keyed_state.state_rows import rows_by_key_group
from spark_state.processor.input.spilled_rows import SpilledRows
from spark_state.processor.output_rows import OutputPlace, OutputSpool
from spark_state.processor.processor_run import Backends, run_processor
from spark_state.subtasks.arrival import Arrival
from spark_state.subtasks.epoch_attempt import EpochAttempt
from spark_state.subtasks.epoch_request import EpochRequest
from spark_state.subtasks.epoch_start import EpochStart
from spark_state.subtasks.maintenance import Maintenance
from spark_state.subtasks.received_input import ReceivedInput
from spark_state.subtasks.resident_operator_state import ResidentOperatorState
from spark_state.subtasks.resident_state import ResidentState
from spark_state.subtasks.running_epoch import RunningEpoch
from spark_state.subtasks.store_session import PublishedEpoch, StoreSession
from spark_state.subtasks.subtask_backends import SubtaskBackends, local_root
from spark_state.subtasks.subtask_snapshots import SubtaskSnapshots
from spark_state.subtasks.unnamed_files import UnnamedFiles
from spark_state.subtasks.written_epoch import ProcessedEpoch, WrittenEpoch

# An earlier attempt notices the end of its task only between calls to the store. The time for
# repeating a failing call comes on top.
_BUSY_SECONDS = 300


@dataclass(frozen=True, slots=True)
class DurableEpoch:
    """An epoch whose barrier is published.

    `output`: rows to send; the caller closes the output. `is_repeated`: True if another attempt has
    published a barrier for the same subtask and epoch. In this case, the epoch's manifest may name
    the barrier of the other attempt until this attempt has completed the epoch.
    """

    output: OutputSpool
    report: EpochReport
    is_repeated: bool


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
        self._store_url = request.store_url
        self._backends = backends
        self._maintenance = maintenance
        self._claims = threading.Lock()
        self._newest: SubtaskAttempt | None = None
        self._plan_id = spec.plan_id
        self._lock = threading.Lock()
        self._running: RunningEpoch | None = None
        self._published: PublishedEpoch | None = None
        self._last_publish_ms: int | None = None
        self._is_closed = False

    def accept(self, request: EpochRequest, check: Callable[[], None]) -> EpochAttempt:
        """Claim the subtask for a request, before the task sends input. `check` raises when the
        task is gone. Raises FencedError, ConfigurationError."""
        spec, task = request.spec, request.task
        by = SubtaskAttempt(self._store.run(task), task.epoch, task.subtask, task.attempt)
        with self._claims:
            newest = self._newest
            if newest is not None and newest.run == by.run and self._plan_id != spec.plan_id:
                raise ConfigurationError(
                    f"two operators of this query are called {spec.operator!r} and would share one "
                    "store; give each its own: transform_with_state(…, name=…)"
                )
            if newest == by:
                raise ConfigurationError(
                    f"one Spark task ran operator {spec.operator!r} twice in epoch {task.epoch}: "
                    "its output is coalesced directly; call repartition(n) on it instead of "
                    "coalesce(n)"
                )
            check_newest(newest, by)
            self._newest, self._plan_id = by, spec.plan_id

        def check_all() -> None:
            check()
            check_newest(self._newest, by)

        return EpochAttempt(request, by, self._store.checkpoints, check_all)

    def receive(self, request: EpochRequest) -> ReceivedInput:
        """Return an object to which the caller adds the rows of an epoch's input."""
        share = self._backends.memory.share_of_input(request.spec)
        return ReceivedInput(request.spec.processor.run_plan, share, str(local_root(request)))

    @contextmanager
    def run(self, attempt: EpochAttempt, rows: pa.Table | SpilledRows) -> Iterator[DurableEpoch]:
        """Run an accepted epoch over the rows, and yield the durable epoch to a `with` block. At
        the end of the block, complete the epoch. Later attempts wait until then.

        If the epoch fails before it is durable, its changes of the state are undone. Raises
        HungSubtaskError if an earlier attempt does not return.
        """
        with self._turn(attempt) as running, ExitStack() as on_error:
            durable, barrier = self._durable(attempt, rows, running, on_error)
            del rows  # the files of spilled rows close with the last reference
            running.is_durable = True
            try:
                yield durable
            finally:
                self._after_barrier(attempt, barrier)
            on_error.pop_all()

    def _durable(
        self,
        attempt: EpochAttempt,
        rows: pa.Table | SpilledRows,
        running: RunningEpoch,
        on_error: ExitStack,
    ) -> tuple[DurableEpoch, Barrier]:
        """Run an epoch up to its barrier. Adds the closing of the output to `on_error`."""
        base = self._bring_to_base(attempt)
        with self._taken_over(base) as taken_over, self._rolled_back_on_error(running):
            processed = self._process(attempt, base, rows, running)
            on_error.callback(processed.output.close)
            running.unnamed = unnamed = UnnamedFiles(attempt, self._maintenance.clock)
            written = self._write(processed, taken_over)
            report = written.report(
                self.state.backend, self._last_publish_ms, self.snapshots.failed
            )
            barrier, is_repeated = self._publish(written, report, unnamed)
        self._seal(barrier)
        return DurableEpoch(processed.output, report, is_repeated), barrier

    @contextmanager
    def _turn(self, attempt: EpochAttempt) -> Iterator[RunningEpoch]:
        """Wait for the end of an earlier attempt. Later attempts wait for the end of the `with`
        block."""
        busy_seconds = _BUSY_SECONDS + attempt.settings.store_retry_seconds
        while not self._lock.acquire(timeout=busy_seconds):
            # The completion of a durable epoch makes several calls to the store, and ends.
            if self._running is None or not self._running.is_durable:
                raise HungSubtaskError(self._waited_in_vain(attempt, busy_seconds))
        self._running = RunningEpoch(attempt.request)
        try:
            check_newest(self._newest, attempt.by)
            yield self._running
        finally:
            self._running = None
            self._release()

    def _bring_to_base(self, attempt: EpochAttempt) -> EpochStart:
        """Bring the resident state to the start of the attempt's epoch."""
        with attempt.timed("restore"):
            base = self._store.base_of(attempt, self._published)
            plan = self.state.plan(base, attempt.spec)
            is_restored = isinstance(plan, Restore)
            if is_restored:
                self.snapshots.begin_anew(base.handles)
            self.snapshots.note_rows(self.state.bring_to(base, plan, attempt))
            # A subtask that has published before needs no part: its run goes on, and a later
            # barrier names a snapshot from the background. State from another store needs no part
            # either: _write writes the whole state to this store.
            if is_restored and self._published is None and not base.is_taken_over:
                self.snapshots.begin_part(base.handles, attempt, self.state.backend)
                if self.state.backend.has_failed():
                    self.state.bring_to(base, Restore(), attempt)
            self.operator_state.bring_to(base, attempt)
        return base

    @contextmanager
    def _taken_over(self, base: EpochStart) -> Iterator[KeyedStateSnapshot | None]:
        """Yield a snapshot of the state if the state comes from another store, and release the
        snapshot afterwards; yield None if the state comes from this store."""
        if not base.is_taken_over:
            yield None
            return
        snapshot = self.state.backend.snapshot()
        try:
            yield snapshot
        finally:
            snapshot.release()

    def _process(
        self,
        attempt: EpochAttempt,
        base: EpochStart,
        rows: pa.Table | SpilledRows,
        running: RunningEpoch,
    ) -> ProcessedEpoch:
        """Run the processor over the rows."""
        spec, backend = attempt.spec.processor, self.state.backend
        share = self._backends.memory.share_of_output(attempt.spec)
        place = OutputPlace(share, str(local_root(attempt.request)))
        backends = Backends(backend, self.operator_state.backend, place, call=running.call)
        with attempt.timed("process"):
            arrival = Arrival.of(rows, spec.run_plan, base.times)
            processor = spec.processor()
            running.processor, running.backend = type(processor).__name__, backend
            check = self._check_of_run(attempt)
            output = run_processor(spec, processor, backends, arrival.inputs, arrival.time, check)
        deleted = backends.dropped.union(state.name for state in spec.deleted_states)
        return ProcessedEpoch(attempt, base, arrival, output, len(deleted))

    def _write(
        self, processed: ProcessedEpoch, taken_over: KeyedStateSnapshot | None
    ) -> WrittenEpoch:
        """Write the changelog and the operator state. If the state comes from another store, also
        write `taken_over`, the whole state, because the other store may delete files at any
        time."""
        attempt, backend = processed.attempt, self.state.backend
        self.state.memory.check(backend, attempt.spec)
        changes = backend.changes()
        with attempt.timed("write"):
            if taken_over is None:
                handles = self.snapshots.named(processed.base.handles, attempt)
            else:
                handles = taken_over.write(attempt.files)
            attempt.check()
            if changes.num_rows:
                changelog = attempt.files.write("changelog", changes, self.key_groups)
                rows = rows_by_key_group(changes, self.key_groups)
                self.snapshots.note_rows({changelog.name: rows})
                handles = (*handles, changelog)
            operator_state = self.operator_state.written(attempt)
        return WrittenEpoch(processed, changes, handles, operator_state)

    def _publish(
        self, written: WrittenEpoch, report: EpochReport, unnamed: UnnamedFiles
    ) -> tuple[Barrier, bool]:
        """Publish the barrier, which makes the epoch durable. Return the barrier, and True if
        another attempt has published a barrier for the same subtask and epoch."""
        attempt = written.processed.attempt
        with attempt.timed("publish"):
            barrier = written.barrier(self.state.backend, report)
            attempt.check()
            reason = unnamed.why_lost(attempt.settings)
            if reason is not None:
                raise StateHostError(
                    f"epoch {attempt.by.epoch} is not published, for its files may have been "
                    f"deleted as orphans: {reason}. Nothing was changed; Spark tries the task again"
                )
            # An attempt that Spark started before this attempt has published by now, or never will.
            # So the listing need not wait for the put.
            checkpoints = attempt.checkpoints
            requests: tuple[Callable[[Barrier], bool | None], ...] = (
                checkpoints.publish_barrier,
                checkpoints.completion.is_repeated,
            )
            _, is_repeated = in_parallel(lambda request: request(barrier), requests)
        return barrier, bool(is_repeated)

    def _seal(self, barrier: Barrier) -> None:
        """Seal the state with the files of the barrier, for the next epoch."""
        self.state.seal(barrier.handles, barrier.states)
        self.operator_state.seal(barrier.operator_state)
        self._published = PublishedEpoch(barrier, is_completed=False)

    def _after_barrier(self, attempt: EpochAttempt, barrier: Barrier) -> None:
        """Complete the epoch if all barriers of the epoch are published. Then begin work in the
        background: clean-up of the store, and a snapshot, if due."""
        with attempt.timed("publish"):
            self._store.complete(barrier)
            self._published = PublishedEpoch(barrier, is_completed=True)
            if barrier.subtask == 0:
                self._store.housekeep(attempt.spec, barrier.epoch)
            self.snapshots.begin_if_due(barrier.handles, attempt, self.state.backend)
        self._last_publish_ms = attempt.milliseconds("publish")

    @contextmanager
    def _rolled_back_on_error(self, running: RunningEpoch) -> Iterator[None]:
        try:
            yield
        except BaseException:
            running.call.end()
            self.state.backend.rollback()
            self.operator_state.rollback()
            self.state.memory.measure_again(self.state.backend)
            raise

    def _check_of_run(self, attempt: EpochAttempt) -> Callable[[], None]:
        """Return a function that the processor's run calls now and then. The function raises if the
        task is gone or fenced, or if the state exceeds the memory limit."""
        if attempt.spec.hosts.max_memory_mb is None:
            return attempt.check
        check_memory = self.state.memory.now_and_then(self.state.backend, attempt.spec)

        def check() -> None:
            attempt.check()
            check_memory()

        return check

    def _waited_in_vain(self, attempt: EpochAttempt, seconds: float) -> str:
        running, by = self._running, attempt.by
        doing = "" if running is None else f": {running.described()}"
        return (
            f"subtask {by.subtask} does not get to epoch {by.epoch}, although it has waited "
            f"for {seconds:.0f} s{doing}. The state host ends now, and an attempt after this one "
            f"restores the state from {self._store_url} in a new host"
        )

    def show_alive(self) -> None:
        """Put signs of life, if due, beside files that no barrier names yet, see unnamed_files."""
        running = self._running
        if running is not None and running.unnamed is not None:
            begin = partial(self._maintenance.signs.submit, self._store_url)
            running.unnamed.show_alive(begin)
        self.snapshots.show_alive()

    def give_up_state(self) -> bool:
        """Release the state if it takes memory on the heap; return True if it was released. The
        next epoch reads the state from the store. Does nothing while an epoch runs, or while a
        snapshot of the state is being written."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if not self.state.memory.bytes or not self.snapshots.let_go():
                return False
            self.state.close()
            return True
        finally:
            self._release()

    def close(self) -> None:
        """Release the state; the store still has all state. If an epoch runs, the state is released
        at the end of the epoch, and `close` does not wait: the processor of an older run may
        hang."""
        self._is_closed = True
        self._give_up_if_closed()

    def _release(self) -> None:
        self._lock.release()
        self._give_up_if_closed()

    def _give_up_if_closed(self) -> None:
        if self._is_closed and self._lock.acquire(blocking=False):
            try:
                self.state.close()
                self._backends.release_copies(self._store_url, self.key_groups)
            finally:
                self._lock.release()
