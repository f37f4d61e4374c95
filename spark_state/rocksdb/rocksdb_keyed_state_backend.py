"""Keyed state of one subtask in RocksDB: column families for each state."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.keyed_state.current_key import Key
from spark_state.keyed_state.full_snapshot import FullSnapshot
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.keyed_element_table import DueTime
from spark_state.keyed_state.keyed_state_backend import KeyedStateBackend
from spark_state.keyed_state.state_serializer import StateSerializer
from spark_state.rocksdb.database import Database, DatabaseMemory
from spark_state.rocksdb.rocksdb_element_table import RocksDBElementTable
from spark_state.rocksdb.rocksdb_snapshot import RocksDBTable, rocksdb_snapshot
from spark_state.rocksdb.rocksdb_state_table import RocksDBStateTable
from spark_state.rocksdb.state_rows_format import StateRowsFormat, state_rows_format
from spark_state.serializers import Forms
from spark_state.state_descriptor import StateDescriptor


class RocksDBKeyedStateBackend(KeyedStateBackend[RocksDBTable]):
    """State on the local disk, in a database in `folder`, which must not be there yet.

    An epoch costs what it reads and changes; a rollback and an undo cost the changes. `close` it.
    `memory`: what it shares with other databases of the process.
    """

    def __init__(
        self,
        key_groups: KeyGroupRange,
        key_columns: KeyColumns,
        forms: Forms,
        folder: Path,
        memory: DatabaseMemory | None = None,
    ) -> None:
        super().__init__(key_groups, key_columns, forms)
        self._database = Database(folder, memory)

    def _new_value_table(
        self, descriptor: StateDescriptor, serializer: StateSerializer[Any]
    ) -> RocksDBTable:
        return RocksDBStateTable(
            self._format(descriptor, serializer), self._database, self._current
        )

    def _new_element_table(
        self,
        descriptor: StateDescriptor,
        serializer: StateSerializer[Any],
        due_time: DueTime | None,
    ) -> RocksDBTable:
        rows = self._format(descriptor, serializer)
        return RocksDBElementTable(rows, self.key_groups, self._database, self._current, due_time)

    def _format(
        self, descriptor: StateDescriptor, serializer: StateSerializer[Any]
    ) -> StateRowsFormat:
        return state_rows_format(descriptor, serializer, self._key_columns, self._forms)

    def _delete(self, table: RocksDBTable) -> None:
        for family in table.families():
            self._database.drop(family)

    def read_ahead(self, keys: Sequence[Key], key_groups: Sequence[int]) -> None:
        for table in self._tables.values():
            if isinstance(table, RocksDBStateTable):
                table.read_ahead(keys, key_groups)

    def memory_bytes(self) -> int:
        return self._database.memory_bytes()

    def snapshot(self, key_groups: KeyGroupRange | None = None) -> FullSnapshot:
        wanted = self.key_groups if key_groups is None else key_groups
        tables = list(self._tables.values())
        return rocksdb_snapshot(self._key_columns, tables, wanted, self._database)

    def close(self) -> None:
        self._database.close()
