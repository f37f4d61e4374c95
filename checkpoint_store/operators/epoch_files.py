"""The files that an operator's epochs name: rows of states, databases, operator state.

A file lies in the directory of its epoch and run. The file's name has the subtask and the attempt
of the writer, so no two writers share a name (I1).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from checkpoint_store.epochs.completed_checkpoint import OperatorStateHandle
from checkpoint_store.epochs.subtask_attempt import SubtaskAttempt
from checkpoint_store.files.database_contents import DatabaseContents
from checkpoint_store.files.database_file_store import DatabaseFileStore
from checkpoint_store.files.epoch_file_name import EpochFileName, NamedKind
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.sign_of_life import SignsOfLife
from checkpoint_store.files.state_file import StateFileHeader
from checkpoint_store.files.state_file_store import StateFileStore
from checkpoint_store.files.state_handle import FilePart, StateFileKind, StateHandle
from checkpoint_store.objects.named_object import read_verified, unique_of_uuid
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.objects.parallel_requests import in_parallel


class EpochFiles:
    """The files in `store`. Call `open` before writing a state file. Safe to use from several
    threads and processes. `states`: the rows of states; `databases`: the databases."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._store_id: str | None = None
        self.states = StateFileStore(store)
        self.databases = DatabaseFileStore(store)

    def open(self, store_id: str) -> None:
        """Remember the id of the store. Each state file contains the id."""
        self._store_id = store_id

    def written_by(self, attempt: SubtaskAttempt) -> AttemptFiles:
        """The writer of an attempt's files. Call `open` before."""
        assert self._store_id is not None, "open the store first"
        return AttemptFiles(attempt, self._store, self._store_id)

    def read_operator_states(self, handles: Sequence[OperatorStateHandle]) -> list[bytes]:
        """The operator states of the handles, verified. Raises ObjectMissingError,
        CorruptObjectError."""
        return in_parallel(
            lambda held: read_verified(
                self._store, held.name, held.epoch, held.length, held.checksum
            ),
            handles,
        )


@dataclass(frozen=True, slots=True)
class AttemptFiles:
    """Writes the files of an attempt; each file is durable when the method returns."""

    attempt: SubtaskAttempt
    _store: ObjectStore
    _store_id: str

    def write(self, kind: StateFileKind, rows: pa.Table, key_groups: KeyGroupRange) -> StateHandle:
        """Write a state file. `rows` belong to `key_groups` and are sorted by `_key_group`, then
        key."""
        by = self.attempt
        header = StateFileHeader(kind, self._store_id, by.epoch, by.subtask, key_groups)
        return StateFileStore(self._store).write(rows, header, str(by.directory), by.attempt)

    def write_database(
        self, folder: Path, contents: DatabaseContents, uploaded: Mapping[str, FilePart]
    ) -> StateHandle:
        """Write the database in a local folder. `uploaded`: the tables that are already in the
        store, by their local names."""
        by = self.attempt

        def new_name(kind: NamedKind) -> str:
            directory = str(by.directory)
            return str(EpochFileName(directory, kind, by.subtask, by.attempt, unique_of_uuid()))

        databases = DatabaseFileStore(self._store)
        return databases.write(folder, contents, uploaded, by.epoch, new_name)

    def write_operator_state(
        self, data: bytes, broadcast: Mapping[str, str]
    ) -> OperatorStateHandle:
        """Write the operator state of the subtask. Only the writer knows the meaning of the bytes.
        `broadcast`: for each non-empty broadcast state, its name and the checksum of its
        content."""
        by, unique = self.attempt, unique_of_uuid()
        name = EpochFileName(str(by.directory), "operator-state", by.subtask, by.attempt, unique)
        self._store.put(str(name), data)
        return OperatorStateHandle(
            name=str(name),
            length=len(data),
            checksum=hashlib.sha256(data).hexdigest(),
            epoch=by.epoch,
            broadcast=tuple(sorted(broadcast.items())),
        )

    def signs_of_life(self) -> SignsOfLife:
        """The signs that keep the attempt's files from the orphan sweep until a barrier names the
        files. The sweep deletes the signs."""
        by = self.attempt
        return SignsOfLife(self._store, str(by.directory), by.subtask, by.attempt)
