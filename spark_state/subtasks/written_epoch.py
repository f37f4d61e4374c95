"""An epoch on its way from the processor to the barrier: output, durable files, report, barrier."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa

from checkpoint_store.epochs.completed_checkpoint import Barrier, OperatorStateHandle, StateSchema
from checkpoint_store.epochs.epoch_report import EpochReport
from checkpoint_store.files.state_handle import bytes_of
from spark_state.checkpointing.restore_plan import Handles
from spark_state.keyed_state.state_rows import number_of_puts
from spark_state.processor.output_rows import OutputSpool
from spark_state.subtasks.arrival import Arrival
from spark_state.subtasks.epoch_attempt import EpochAttempt
from spark_state.subtasks.epoch_start import EpochStart
from spark_state.subtasks.subtask_backends import Backend


@dataclass(frozen=True, slots=True)
class ProcessedEpoch:
    """An epoch whose processor has run. `base`: the start of the epoch; `arrival`: the input;
    `output`: rows not yet sent; `states_deleted`: number of states that the epoch deletes."""

    attempt: EpochAttempt
    base: EpochStart
    arrival: Arrival
    output: OutputSpool
    states_deleted: int


@dataclass(frozen=True, slots=True)
class WrittenEpoch:
    """An epoch whose files are durable; no barrier names the files yet. `changes`: rows of the
    changelog; `handles`: files of the keyed state after the epoch; `operator_state`: object with
    the operator state after the epoch, None without operator state."""

    processed: ProcessedEpoch
    changes: pa.Table
    handles: Handles
    operator_state: OperatorStateHandle | None

    def report(
        self, backend: Backend, last_publish_ms: int | None, failed_snapshots: int
    ) -> EpochReport:
        """Return the report for the barrier. `backend`: the keyed state after the epoch."""
        processed, attempt = self.processed, self.processed.attempt
        puts = number_of_puts(self.changes)
        return EpochReport(
            rows_in=processed.arrival.rows_in,
            rows_out=processed.output.rows,
            changed=puts,
            removed=self.changes.num_rows - puts,
            entries=len(backend),
            written_bytes=self._bytes(),
            restore_ms=attempt.milliseconds("restore"),
            process_ms=attempt.milliseconds("process"),
            write_ms=attempt.milliseconds("write"),
            late_rows=processed.arrival.late_rows,
            timers=backend.number_of_timers(),
            memory_bytes=backend.memory_bytes(),
            last_publish_ms=last_publish_ms,
            states_deleted=processed.states_deleted,
            failed_snapshots=failed_snapshots,
        )

    def _bytes(self) -> int:
        """Return the bytes of the epoch's new files, and of its object of operator state."""
        before, own = self.processed.base.handles, self.operator_state
        is_new = own is not None and own.epoch == self.processed.attempt.by.epoch
        keyed = bytes_of((*before, *self.handles)) - bytes_of(before)
        return keyed + (own.length if own is not None and is_new else 0)

    def barrier(self, backend: Backend, report: EpochReport) -> Barrier:
        """Return the barrier that makes the epoch durable. `backend`: see `report`."""
        attempt, base = self.processed.attempt, self.processed.base
        lineage = base.lineage
        return Barrier(
            barrier_id=uuid4().hex,
            epoch=attempt.by.epoch,
            subtask=attempt.by.subtask,
            parallelism=attempt.spec.parallelism,
            run=attempt.by.run,
            attempt=attempt.by.attempt,
            plan_id=attempt.spec.plan_id,
            base=base.barriers,
            base_epoch=None if lineage is None else lineage.epoch,
            base_run=None if lineage is None else lineage.run.number,
            handles=self.handles,
            states=self._states(backend),
            deleted_states=tuple(
                StateSchema(state.name, state.kind, state.schema_json, state.ttl_ms)
                for state in attempt.spec.processor.deleted_states
            ),
            report=report,
            time=self.processed.arrival.subtask_time(backend.next_timer_ms()),
            operator_state=self.operator_state,
        )

    def _states(self, backend: Backend) -> tuple[StateSchema, ...]:
        """Return the states after the epoch. `since` is the first epoch of a state in this store. A
        state of the base keeps its `since`. For a new state, and for all states if the base is in
        another store, `since` is this epoch."""
        base, epoch = self.processed.base, self.processed.attempt.by.epoch
        held = () if base.is_taken_over else base.states
        since = {state.name: state.since for state in held}
        return tuple(
            StateSchema(
                state.name,
                state.kind,
                state.schema_json,
                state.ttl_ms,
                since.get(state.name, epoch),
            )
            for state in backend.descriptors
        )
