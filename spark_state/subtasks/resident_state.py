"""A subtask's state in memory, and the list of files in the store that give the same state.

An epoch brings the state to the epoch's base (`plan`, `bring_to`) and changes the state. Then the
epoch seals the state with the files in its barrier, or rolls the state back. After any failure,
either the listed files give the state in memory, or no list is kept (I6).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from checkpoint_store.epochs.completed_checkpoint import StateSchema
from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.checkpointing.kept_state import Counts, RowsOfFiles
from spark_state.checkpointing.restore_plan import (
    Extend,
    Handles,
    Resident,
    Restore,
    RestorePlan,
    UndoSealed,
    plan_restore,
)
from spark_state.keyed_state.backend_restore import BackendRestore, StoredState
from spark_state.keyed_state.keyed_state_backend import FileToApply
from spark_state.keyed_state.schema_evolution import check_evolution
from spark_state.keyed_state.state_rows import no_rows, rows_by_key_group
from spark_state.processor.schemas import state_descriptor
from spark_state.subtasks.epoch_attempt import EpochAttempt
from spark_state.subtasks.epoch_request import BackendSettings, OperatorSpec
from spark_state.subtasks.epoch_start import EpochStart
from spark_state.subtasks.subtask_backends import Backend, SubtaskBackends
from spark_state.subtasks.subtask_memory import SubtaskMemory


class ResidentState:
    """The state of `key_groups`. Nothing is in memory at first."""

    def __init__(self, key_groups: KeyGroupRange, backends: SubtaskBackends) -> None:
        self.key_groups = key_groups
        self.memory = SubtaskMemory(backends.memory)
        self._backends = backends
        self._backend: Backend | None = None
        self._settings: BackendSettings | None = None
        self._resident: Resident | None = None
        self._since: dict[str, int] = {}

    @property
    def handles(self) -> Handles | None:
        """The files that give the state when applied in order; None if no list of files gives the
        state."""
        return None if self._resident is None else self._resident.handles

    @property
    def backend(self) -> Backend:
        """The backend with the states. Call `bring_to` first."""
        assert self._backend is not None, "nothing is in memory"
        return self._backend

    def plan(self, base: EpochStart, spec: OperatorSpec) -> RestorePlan:
        """Plan how the state in memory becomes the state of `base`."""
        if self._backend is None or self._backend.has_failed():
            return Restore()
        if self._settings != spec.backend or not self._may_lead_to(base, spec):
            return Restore()
        return plan_restore(self._resident, base.handles)

    def bring_to(self, base: EpochStart, plan: RestorePlan, attempt: EpochAttempt) -> RowsOfFiles:
        """Carry out the plan. Return the row counts, by key group, of the files read."""
        # Until the end of the plan, no list of files gives the backend's state.
        self._resident = None
        rows: dict[str, Counts] = {}
        match plan:
            case Restore():
                self.close()
                restore = BackendRestore(
                    base.handles,
                    [*_announced(base, attempt.spec)],
                    base.store.files.databases,
                    attempt.check,
                )
                backend, rest = self._backends.restored(attempt.request, self.key_groups, restore)
                try:
                    backend.restore(self._files(backend, base, rest, attempt, rows))
                    self.memory.check(backend, attempt.spec)
                except BaseException:
                    backend.close()
                    self.memory.release()
                    raise
                self._backend, self._settings = backend, attempt.spec.backend
            case Extend(handles):
                for state in _announced(base, attempt.spec):
                    self.backend.open_table(state.descriptor)
                for batches, in_file in self._files(self.backend, base, handles, attempt, rows):
                    self.backend.apply(batches, in_file)
            case UndoSealed():
                self.backend.undo_sealed()
        self._resident = Resident(base.handles, before_sealed=None)
        self._since = _since(base.states)
        return rows

    def seal(self, handles: Handles, states: Iterable[StateSchema]) -> None:
        """End the epoch. `handles`: the files that give the state in memory from now on. `states`:
        the states in the epoch's barrier."""
        before, self._resident = self.handles, None
        self.backend.seal()
        self.memory.measure_again(self.backend)
        self._resident = Resident(handles, before_sealed=before)
        self._since = _since(states)

    def close(self) -> None:
        """Release the backend and the memory."""
        self._resident = None
        if self._backend is not None:
            self._backend.close()
            self._backend = self._settings = None
        self.memory.release()

    def _files(
        self,
        backend: Backend,
        base: EpochStart,
        handles: Handles,
        attempt: EpochAttempt,
        rows: dict[str, Counts],
    ) -> Iterator[FileToApply]:
        """Yield the files of the base for `backend`. `rows` gets for each file the number of rows
        in each key group."""
        for handle, batches in base.store.files.states.read_each(handles, self.key_groups):
            attempt.check()
            in_file = [state.name for state in base.states if state.since <= handle.epoch]
            # Files without rows for this subtask get an entry, too.
            of_file = rows.setdefault(handle.name, no_rows(self.key_groups))
            yield self._watched(batches, backend, attempt.spec, of_file), in_file

    def _watched(
        self,
        batches: Iterable[pa.RecordBatch],
        backend: Backend,
        spec: OperatorSpec,
        counts: Counts,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches. After the backend has applied a batch, check the memory, and add the
        batch's rows in each key group to `counts`."""
        for batch in batches:
            yield batch
            self.memory.check(backend, spec)
            counts += rows_by_key_group(batch, self.key_groups)

    def _may_lead_to(self, base: EpochStart, spec: OperatorSpec) -> bool:
        """Return True if the backend's states can become the states of the base by applying files
        of the base.

        False if the backend has a state that only a failed epoch knew (neither the base nor the
        processor has it), a state that was deleted and declared again on another host, or a state
        with an older schema.
        """
        stored = {s.name: (s.kind, s.schema_json) for s in base.states}
        declared = {s.name: (s.kind, s.schema_json) for s in spec.processor.states}
        held = {s.name: (s.kind, s.schema_json) for s in self.backend.descriptors}
        began_again = any(
            since != self._since.get(name, since) for name, since in _since(base.states).items()
        )
        return held.items() <= (stored | declared).items() and not began_again


def _announced(base: EpochStart, spec: OperatorSpec) -> Iterator[StoredState]:
    """Yield the states of the base, with the schemas that the processor declares. A state that the
    processor no longer declares has the schema in the base."""
    declared = {state.name: state for state in spec.processor.states}
    for state in base.states:
        stored = state_descriptor(state.name, state.kind, state.schema_json, state.ttl_ms)
        if state.name in declared:
            check_evolution(stored, declared[state.name])
        yield StoredState(declared.get(state.name, stored), state.since)


def _since(states: Iterable[StateSchema]) -> dict[str, int]:
    return {state.name: state.since for state in states}
