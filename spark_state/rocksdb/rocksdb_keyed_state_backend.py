"""The keyed state of one subtask in RocksDB. Each state has one column family, or two if elements
become due."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from checkpoint_store.files.database_contents import DatabaseContents
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import FilePart, StateHandle
from spark_state.codecs.codec import Forms
from spark_state.keyed_state.current_key import Key
from spark_state.keyed_state.full_snapshot import FullSnapshot
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.keyed_state_backend import KeyedStateBackend
from spark_state.keyed_state.keyed_tables import DueTime
from spark_state.keyed_state.object_sizes import FEW
from spark_state.keyed_state.state_rows import StateSerializer
from spark_state.rocksdb.database import ColumnFamily, Database, ReadOnlyDatabase
from spark_state.rocksdb.due_rows import DueRows
from spark_state.rocksdb.local_copies import DatabaseHome
from spark_state.rocksdb.restored_database import ENGINE, ROWS_VERSION, RestoredDatabase
from spark_state.rocksdb.rocksdb_element_table import RocksDBElementTable
from spark_state.rocksdb.rocksdb_incremental_snapshot import (
    RocksDBIncrementalSnapshot,
    stored_state,
)
from spark_state.rocksdb.rocksdb_snapshot import RocksDBTable, rocksdb_snapshot
from spark_state.rocksdb.rocksdb_state_table import RocksDBStateTable
from spark_state.rocksdb.state_rows_format import state_rows_format
from spark_state.state_descriptor import StateDescriptor


class RocksDBKeyedStateBackend(KeyedStateBackend[RocksDBTable]):
    """A backend with its state on the local disk, in a database in `home`. The owner must call
    `close`.

    An epoch costs O(reads and changes); a rollback and an undo cost O(changes).

    `restored`: description of a database from the store. The files of this database are already in
    `home`, and a registered state gets its entries from these files. After all states are
    registered, `forget_others` deletes all other states of the database. If `restored` is None, the
    backend begins with an empty database.
    """

    def __init__(
        self,
        key_groups: KeyGroupRange,
        key_columns: KeyColumns,
        forms: Forms,
        home: DatabaseHome,
        restored: RestoredDatabase | None = None,
    ) -> None:
        super().__init__(key_groups, key_columns, forms)
        self._restored = restored
        self._tables_of_store: dict[str, FilePart] = {} if restored is None else restored.tables
        self._copies = home.copies
        self._database = Database(home.folder, home.memory, home.settings)

    def forget_others(self) -> None:
        """Delete the states of the restored database that are not registered."""
        self._restored = None
        self._database.drop_what_is_kept()

    def _new_value_table(
        self, descriptor: StateDescriptor, serializer: StateSerializer[Any]
    ) -> RocksDBTable:
        rows = state_rows_format(descriptor, serializer, self._key_columns, self._forms)
        (family,), counts = self._stored(descriptor, 1)
        return RocksDBStateTable(rows, family, counts, self._database, self._current)

    def _new_element_table(
        self,
        descriptor: StateDescriptor,
        serializer: StateSerializer[Any],
        due_time: DueTime | None,
    ) -> RocksDBTable:
        rows = state_rows_format(descriptor, serializer, self._key_columns, self._forms)
        families, counts = self._stored(descriptor, 1 if due_time is None else 2)
        due = None
        if due_time is not None:
            due = DueRows(self.key_groups, rows.keys, families[1], due_time)
        return RocksDBElementTable(rows, families[0], counts, self._database, self._current, due)

    def _stored(
        self, descriptor: StateDescriptor, families: int
    ) -> tuple[list[ColumnFamily], Counter[int]]:
        """Return the column families of a state, and the number of entries of each key group. Both
        come from the restored database if it has the state; otherwise they are new and empty.
        `families`: 1 for the rows only, 2 for the rows and the due times."""
        database = self._database
        held = None if self._restored is None else self._restored.state(descriptor)
        if held is None:
            return [database.new_column_family() for _ in range(families)], Counter()
        assert self._restored is not None
        ranges = self._restored.ranges()
        kept = [database.kept_column_family(name, ranges) for name in held.families]
        return kept, Counter(self._restored.entries(held))

    def copy(
        self, other: ReadOnlyDatabase, restored: RestoredDatabase, check: Callable[[], None]
    ) -> None:
        """Add rows of another database to this database. The states must be registered, and this
        database must not have entries of the added key groups. `restored`: description of the other
        database, and the key groups to add. `check`: see BackendRestore. Raises StateHostError."""
        for state in self._states.values():
            held, table = restored.state(state.descriptor), state.table
            if held is not None:
                for own, theirs in zip(table.families(), held.families, strict=True):
                    for start, end in restored.ranges():
                        self._database.copy(other.rows(theirs, start, end), own, check)
                table.counts.update(restored.entries(held))

    def _delete(self, table: RocksDBTable) -> None:
        for family in table.families():
            self._database.drop(family)

    def read_ahead(self, keys: Sequence[Key], key_groups: Sequence[int]) -> None:
        for table in self._tables:
            if isinstance(table, RocksDBStateTable):
                table.read_ahead(keys, key_groups)

    def memory_bytes(self) -> int:
        return self._database.memory_bytes()

    def bytes_on_heap(self, looked_at: int = FEW) -> int:
        return sum(table.bytes_on_heap(looked_at) for table in self._tables)

    def forget_what_was_read(self) -> None:
        for table in self._tables:
            table.forget_what_was_read()

    def has_failed(self) -> bool:
        return self._database.has_failed()

    def changes(self) -> pa.Table:
        # A processor may have caught the error of a failed read, and gone on without the row.
        self._database.check_reads()
        return super().changes()

    def snapshot(self, key_groups: KeyGroupRange | None = None) -> FullSnapshot:
        wanted = self.key_groups if key_groups is None else key_groups
        return rocksdb_snapshot(self._key_columns, self._tables, wanted, self._database)

    def incremental_snapshot(self, held: Sequence[StateHandle]) -> RocksDBIncrementalSnapshot:
        contents = DatabaseContents(
            engine=ENGINE,
            rows_version=ROWS_VERSION,
            key_groups=self.key_groups,
            key_schema=pa.schema(
                list(zip(self._key_columns.names, self._key_columns.arrow_types, strict=True))
            ),
            key_type_names=self._key_columns.type_names,
            states=tuple(
                stored_state(state.descriptor, state.table) for state in self._states.values()
            ),
            tables=(),
            small_files={},
        )
        named = {part.name for handle in held for part in handle.parts}
        # A table that no barrier names is uploaded again: the store may delete the table before a
        # new barrier names the table.
        uploaded = {
            table: part for table, part in self._tables_of_store.items() if part.name in named
        }
        return RocksDBIncrementalSnapshot(
            self._database.checkpoint(), contents, uploaded, self._note_uploaded
        )

    def _note_uploaded(self, files: Path, tables: dict[str, FilePart]) -> None:
        self._tables_of_store = tables
        if self._copies is not None:
            self._copies.keep(files, tables)

    def close(self) -> None:
        self._database.close()
