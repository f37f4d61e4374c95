"""Databases of backends in a folder, in the layout of a store, without a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from checkpoint_store.files.database_contents import DatabaseContents
from checkpoint_store.files.database_file_store import DatabaseFileStore
from checkpoint_store.files.epoch_file_name import EpochFileName, NamedKind
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import FilePart, StateHandle
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.objects.named_object import unique_of_uuid
from spark_state.codecs.state_codecs import PLAIN_FORMS
from spark_state.keyed_state.backend_restore import BackendRestore, StoredState
from spark_state.rocksdb.database_restore import restored_backend
from spark_state.rocksdb.local_copies import DatabaseHome, LocalCopies
from spark_state.rocksdb.rocksdb_keyed_state_backend import RocksDBKeyedStateBackend
from spark_state.state_descriptor import StateDescriptor
from tests.support.operators.keyed_state_backend_contract import KEYS, WrittenFiles


def nobody_minds() -> None:
    """Replace a check of a restore by a check that never raises."""


@dataclass
class StoredDatabases(WrittenFiles):
    """A store in `folder` for incremental snapshots and restores. All files are below `folder`."""

    folder: Path = Path()
    epoch: int = 0
    copies: LocalCopies | None = None
    numbers: count[int] = field(default_factory=count)

    @property
    def databases(self) -> DatabaseFileStore:
        """The databases of the store."""
        return DatabaseFileStore(LocalObjectStore(self.folder / "store"))

    def write_database(
        self, folder: Path, contents: DatabaseContents, uploaded: Mapping[str, FilePart]
    ) -> StateHandle:
        """See AttemptFiles."""

        def new_name(kind: NamedKind) -> str:
            return str(EpochFileName("epochs", kind, 0, 0, unique_of_uuid()))

        return self.databases.write(folder, contents, uploaded, self.epoch, new_name)

    def tables(self) -> set[str]:
        """The names of the uploaded tables."""
        return {path.name for path in self.folder.glob("store/epochs/table-*.sst")}

    def snapshot(
        self, backend: RocksDBKeyedStateBackend, held: Sequence[StateHandle] = ()
    ) -> tuple[StateHandle, ...]:
        """Write an incremental snapshot."""
        return backend.incremental_snapshot(held).write(self)

    def new(self, key_groups: KeyGroupRange) -> RocksDBKeyedStateBackend:
        """An empty backend."""
        backend, rest = self.restored((), (), key_groups)
        assert not rest
        return backend

    def restored(
        self,
        handles: Sequence[StateHandle],
        descriptors: Sequence[StateDescriptor],
        key_groups: KeyGroupRange,
    ) -> tuple[RocksDBKeyedStateBackend, tuple[StateHandle, ...]]:
        """A backend restored from these files, and the files that the backend does not contain
        yet."""
        home = DatabaseHome(self.folder / f"backend-{next(self.numbers)}", copies=self.copies)
        states = [StoredState(descriptor, 0) for descriptor in descriptors]
        files = BackendRestore(tuple(handles), states, self.databases, nobody_minds)
        return restored_backend(key_groups, KEYS, PLAIN_FORMS, home, files)
