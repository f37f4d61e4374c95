"""Copies an operator's state after an epoch to another store, as rows that all backends read.

Memory does not grow with the state: the copy reads, sorts and writes a few key groups at a time. If
the state is a RocksDB database, the copy opens the database on the local disk and reads the entries
in key order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any

from checkpoint_store.epochs.completed_checkpoint import Barrier
from checkpoint_store.epochs.subtask_attempt import SubtaskAttempt
from checkpoint_store.files.database_readers import DatabaseReaderError
from checkpoint_store.files.key_group_range import KeyGroupRange, key_group_range_of_subtask
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.files.working_directory import working_directory
from checkpoint_store.operators.completed_checkpoint_store import (
    CompletedCheckpointStore,
)
from checkpoint_store.operators.epoch_files import AttemptFiles
from checkpoint_store.operators.operator_history import OperatorHistory
from spark_state.keyed_state.backend_restore import BackendRestore, StoredState
from spark_state.keyed_state.keyed_state_backend import KeyedStateBackend
from spark_state.processor.rows import STATE_FORMS
from spark_state.processor.schemas import key_columns, state_descriptor
from spark_state.processor.stored_schema import struct_from_json
from spark_state.subtasks.subtask_backends import restored_on_heap

ROWS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class OperatorCopy:
    """A copy of an operator's state from the store `source` to the store `target`. `history`:
    reader of the source's epochs and metadata."""

    history: OperatorHistory
    source: CompletedCheckpointStore
    target: CompletedCheckpointStore

    def of_subtask(self, barrier: Barrier) -> Barrier:
        """Copy the state of a subtask to new files in the target, as rows. Return the barrier that
        names these files. `barrier`: the subtask's barrier in the source."""
        own = key_group_range_of_subtask(
            self.history.metadata.max_parallelism, barrier.parallelism, barrier.subtask
        )
        by = SubtaskAttempt(barrier.run, barrier.epoch, barrier.subtask, barrier.attempt)
        files = self.target.files.written_by(by)
        handles = tuple(
            handle
            for key_groups in _slices(barrier.handles, own)
            for handle in self._rows_of(barrier, key_groups, files)
        )
        return replace(
            barrier,
            handles=handles,
            base=(),
            base_epoch=None,
            operator_state=self._operator_state(barrier, files),
        )

    def _rows_of(
        self, barrier: Barrier, key_groups: KeyGroupRange, files: AttemptFiles
    ) -> tuple[StateHandle, ...]:
        handles = tuple(
            replace(handle, key_groups=common)
            for handle in barrier.handles
            if (common := handle.key_groups.intersection(key_groups)) is not None
        )
        with self._restored(barrier, handles, key_groups) as backend:
            return backend.snapshot().write(files)

    @contextmanager
    def _restored(
        self, barrier: Barrier, handles: tuple[StateHandle, ...], key_groups: KeyGroupRange
    ) -> Iterator[KeyedStateBackend[Any]]:
        """Yield a backend with the contents of `handles` for these key groups."""
        states = [
            StoredState(
                state_descriptor(state.name, state.kind, state.schema_json, state.ttl_ms),
                state.since,
            )
            for state in barrier.states
        ]
        restore = BackendRestore(handles, states, self.source.files.databases, lambda: None)
        with ExitStack() as at_end:
            backend, rest = self._begun(restore, key_groups, at_end)
            at_end.callback(backend.close)
            backend.restore(
                (batches, [s.descriptor.name for s in states if s.since <= handle.epoch])
                for handle, batches in self.source.files.states.read_each(rest, key_groups)
            )
            yield backend

    def _begun(
        self, restore: BackendRestore, key_groups: KeyGroupRange, at_end: ExitStack
    ) -> tuple[KeyedStateBackend[Any], Sequence[StateHandle]]:
        """Return a backend in which all states of `restore` are registered, and the files that are
        still to be applied. `at_end`: removes the backend's local files."""
        columns = key_columns(struct_from_json(self.history.metadata.key_schema_json).fields)
        database = _first_database(restore.handles)
        if database is None:
            return restored_on_heap(key_groups, columns, restore)
        try:
            from spark_state.rocksdb.database_restore import restored_backend
            from spark_state.rocksdb.local_copies import DatabaseHome
        except ImportError as error:
            raise DatabaseReaderError(
                self.history.url, database.name, "rocksdb", str(error)
            ) from error
        folder = at_end.enter_context(working_directory(self.history.url, database.name))
        home = DatabaseHome(folder / "backend")
        return restored_backend(key_groups, columns, STATE_FORMS, home, restore)

    def _operator_state(self, barrier: Barrier, files: AttemptFiles) -> Any:
        held = barrier.operator_state
        if held is None:
            return None
        (data,) = self.source.files.read_operator_states([held])
        return files.write_operator_state(data, dict(held.broadcast))


def _first_database(handles: Sequence[StateHandle]) -> StateHandle | None:
    return next((handle for handle in handles if handle.kind == "database"), None)


def _slices(handles: Sequence[StateHandle], own: KeyGroupRange) -> Iterator[KeyGroupRange]:
    """Split `own` into ranges of about `ROWS_AT_ONCE` rows or fewer, each with at least one key
    group. State in a database is a single range, because the copy does not load a database into
    memory."""
    names = attrgetter("name")
    files = {name: next(of_name) for name, of_name in groupby(sorted(handles, key=names), names)}
    rows = sum(handle.rows for handle in files.values())
    count = 1 if _first_database(handles) else min(len(own), 1 + rows // ROWS_AT_ONCE)
    bounds = [own.start + len(own) * part // count for part in range(count + 1)]
    for start, end in pairwise(bounds):
        yield KeyGroupRange(start, end - 1)
