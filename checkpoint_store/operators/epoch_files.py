"""The files that an operator's epochs name: rows of states, databases, operator state.

A file lies in the directory of its epoch and run. The file's name has the subtask and the attempt
of the writer, so no two writers share a name (I1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from checkpoint_store.epochs.completed_checkpoint import OperatorStateHandle, Run
from checkpoint_store.epochs.operator_layout import EpochDirectory
from checkpoint_store.files.database_contents import DatabaseContents
from checkpoint_store.files.database_file_store import DatabaseFileStore, DatabasePlace
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.sign_of_life import SignOfLife, SignsOfLife
from checkpoint_store.files.state_file import StateFileHeader
from checkpoint_store.files.state_file_store import StateFileStore
from checkpoint_store.files.state_handle import FilePart, StateFileKind, StateHandle
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.operators.operator_state_store import OperatorStateStore


@dataclass(frozen=True, slots=True)
class SubtaskAttempt:
    """An attempt of a subtask to write its part of an epoch. `attempt`: Spark's task attempt id."""

    epoch: int
    run: Run
    subtask: int
    attempt: int

    @property
    def directory(self) -> EpochDirectory:
        """The directory of the attempt's files."""
        return EpochDirectory(self.epoch, self.run.number)


class EpochFiles:
    """The files in `store`. Call `open` before writing a state file. Safe to use from several
    threads and processes. `unique`: see StateFileStore."""

    def __init__(self, store: ObjectStore, unique: Callable[[], str]) -> None:
        self._store = store
        self._unique = unique
        self._states = StateFileStore(store, unique)
        self._operator_states = OperatorStateStore(store, unique)
        self._store_id: str | None = None
        self.databases = DatabaseFileStore(store, unique)

    def open(self, store_id: str) -> None:
        """Remember the id of the store. Each state file contains the id."""
        self._store_id = store_id

    def write(
        self, kind: StateFileKind, rows: pa.Table, key_groups: KeyGroupRange, by: SubtaskAttempt
    ) -> StateHandle:
        """Write a state file; durable on return. `rows` belong to `key_groups` and are sorted by
        `_key_group`, then key."""
        assert self._store_id is not None, "open the store first"
        header = StateFileHeader(
            kind=kind,
            store_id=self._store_id,
            epoch=by.epoch,
            subtask=by.subtask,
            key_groups=key_groups,
        )
        return self._states.write(rows, header, str(by.directory), by.attempt)

    def read(self, handle: StateHandle, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
        """The rows of `handle` in `key_groups`. The call reads and verifies the file before the
        first row.

        Raises ObjectMissingError, CorruptObjectError, UnsupportedFormatError.
        """
        return self._states.read(handle, key_groups)

    def read_each(
        self, handles: Iterable[StateHandle], key_groups: KeyGroupRange
    ) -> Iterator[tuple[StateHandle, Iterator[pa.RecordBatch]]]:
        """Read several handles, as `read`, each in its turn. A file is read once for consecutive
        handles of the same file."""
        return self._states.read_each(handles, key_groups)

    def write_database(
        self,
        folder: Path,
        contents: DatabaseContents,
        uploaded: Mapping[str, FilePart],
        key_groups: KeyGroupRange,
        by: SubtaskAttempt,
    ) -> StateHandle:
        """Write a database from a local folder; durable on return. See DatabaseFileStore."""
        place = DatabasePlace(str(by.directory), by.epoch, by.subtask, by.attempt, key_groups)
        return self.databases.write(folder, contents, uploaded, place)

    def write_operator_state(
        self, data: bytes, broadcast: Mapping[str, str], by: SubtaskAttempt
    ) -> OperatorStateHandle:
        """Write the operator state of a subtask; durable on return. `broadcast`: see
        OperatorStateHandle."""
        return self._operator_states.write(data, by.directory, by.subtask, by.attempt, broadcast)

    def read_operator_states(self, handles: Sequence[OperatorStateHandle]) -> list[bytes]:
        """The operator states of the handles, verified. Raises ObjectMissingError,
        CorruptObjectError."""
        return self._operator_states.read_all(handles)

    def signs_of_life(self, by: SubtaskAttempt) -> SignsOfLife:
        """The signs that keep the files of an attempt from the orphan sweep until a barrier names
        the files. The sweep deletes the signs."""

        def next_sign() -> SignOfLife:
            return SignOfLife(str(by.directory), by.subtask, by.attempt, self._unique())

        return SignsOfLife(self._store, next_sign)
