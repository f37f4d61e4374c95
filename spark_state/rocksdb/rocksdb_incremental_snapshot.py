"""A snapshot that consists of RocksDB's own files. Only files that the store lacks are uploaded.

RocksDB never changes a table. So two successive checkpoints of a database share most tables. A
snapshot uploads the rows written since the last snapshot, and the tables that compaction has
rewritten since then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from checkpoint_store.files.database_contents import DatabaseContents, DatabaseState
from checkpoint_store.files.database_file_store import tables_of
from checkpoint_store.files.state_handle import FilePart, StateHandle
from checkpoint_store.operators.epoch_files import AttemptFiles
from spark_state.rocksdb.database import DatabaseCheckpoint
from spark_state.rocksdb.rocksdb_snapshot import RocksDBTable
from spark_state.state_descriptor import StateDescriptor


class RocksDBIncrementalSnapshot:
    """A KeyedStateSnapshot of a whole database.

    - `checkpoint`: the files of the database.
    - `contents`: the description of the database, without the list of files.
    - `uploaded`: the tables that are already in the store, by local name.
    - `note_uploaded`: called after the upload, with the checkpoint's local folder and the tables
      in the store, by local name. The folder is deleted after the call.
    """

    def __init__(
        self,
        checkpoint: DatabaseCheckpoint,
        contents: DatabaseContents,
        uploaded: dict[str, FilePart],
        note_uploaded: Callable[[Path, dict[str, FilePart]], None],
    ) -> None:
        self.key_groups = contents.key_groups
        self._checkpoint = checkpoint
        self._contents = contents
        self._uploaded = uploaded
        self._note_uploaded = note_uploaded

    def write(self, files: AttemptFiles) -> tuple[StateHandle, ...]:
        """Upload the snapshot. If the database has no entries, upload nothing. Raises
        StateHostError if a new table is damaged."""
        try:
            if not any(state.entries for state in self._contents.states):
                return ()
            checkpoint = self._checkpoint
            tables, small_files = tuple(checkpoint.tables()), checkpoint.small_files()
            checkpoint.check([table for table in tables if table not in self._uploaded])
            contents = replace(self._contents, tables=tables, small_files=small_files)
            handle = files.write_database(checkpoint.folder, contents, self._uploaded)
            self._note_uploaded(checkpoint.folder, tables_of(handle, contents))
            return (handle,)
        finally:
            self.release()

    def release(self) -> None:
        self._checkpoint.release()


def stored_state(descriptor: StateDescriptor, table: RocksDBTable) -> DatabaseState:
    """Describe a state in a database, as of the last sealed epoch."""
    return DatabaseState(
        name=descriptor.name,
        kind=descriptor.kind,
        schema_json=descriptor.schema_json,
        ttl_ms=descriptor.ttl_ms,
        value_schema=pa.schema(list(descriptor.value_type)),
        families=tuple(family.name for family in table.families()),
        entries=tuple(sorted((group, count) for group, count in table.sizes().items() if count)),
    )
