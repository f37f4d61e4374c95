"""The keyed state of one subtask on the Python heap: one table per state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.codecs.codec import Forms
from spark_state.heap.heap_element_table import HeapElementTable
from spark_state.heap.heap_state_table import HeapStateTable
from spark_state.keyed_state.current_key import Key
from spark_state.keyed_state.full_snapshot import FullSnapshot, KeptEntries
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.keyed_state_backend import FileToApply, KeyedStateBackend
from spark_state.keyed_state.keyed_tables import DueTime
from spark_state.keyed_state.object_sizes import FEW
from spark_state.keyed_state.state_rows import StateRows, StateSerializer
from spark_state.state_descriptor import StateDescriptor

LEAST_PACKED_ROWS = 1 << 14
"""A restore keeps the rows of a value state as Arrow columns if there are at least so many rows."""

HeapTable = HeapStateTable[Any] | HeapElementTable[Any, Any]


class HeapKeyedStateBackend(KeyedStateBackend[HeapTable]):
    """A backend on the Python heap. Changelog, rollback and undo cost O(changes). A snapshot copies
    the bucket arrays, but no entry."""

    def __init__(self, key_groups: KeyGroupRange, key_columns: KeyColumns, forms: Forms) -> None:
        super().__init__(key_groups, key_columns, forms)
        # Rows of value states that a restore has read so far.
        self._rows_read: dict[str, list[StateRows]] = {}
        self._bytes_read = 0

    def _new_value_table(
        self, descriptor: StateDescriptor, serializer: StateSerializer[Any]
    ) -> HeapTable:
        return HeapStateTable(descriptor.name, serializer, self.key_groups, self._current)

    def _new_element_table(
        self,
        descriptor: StateDescriptor,
        serializer: StateSerializer[Any],
        due_time: DueTime | None,
    ) -> HeapTable:
        return HeapElementTable(
            descriptor.name, serializer, self.key_groups, self._current, due_time
        )

    def restore(self, files: Iterable[FileToApply]) -> None:
        """Apply the rows of files to a backend without entries. The rows of large value states stay
        Arrow columns, see packed_entries."""
        for batches, states in files:
            for batch in batches:
                for rows in self._rows_of_states(batch, states):
                    table = self._states[rows.name].table
                    if isinstance(table, HeapStateTable):
                        self._rows_read.setdefault(rows.name, []).append(rows)
                        arrays = (*rows.keys.columns, rows.key_groups, rows.states)
                        self._bytes_read += sum(array.nbytes for array in arrays)
                    else:
                        table.apply(rows.entries())
        for name in [*self._rows_read]:
            parts = self._rows_read.pop(name)
            table = self._states[name].table
            if isinstance(table, HeapStateTable) and _may_be_packed(parts):
                table.pack(parts)
            else:
                for rows in parts:
                    table.apply(rows.entries())
        self._bytes_read = 0

    def read_ahead(self, keys: Sequence[Key], key_groups: Sequence[int]) -> None:
        for table in self._tables:
            if isinstance(table, HeapStateTable):
                table.read_ahead(keys, key_groups)

    def memory_bytes(self) -> int:
        return sum(table.memory_bytes() for table in self._tables)

    def bytes_on_heap(self, looked_at: int = FEW) -> int:
        return self._bytes_read + sum(
            table.memory_bytes(looked_at) + table.undo_bytes(looked_at) for table in self._tables
        )

    def snapshot(self, key_groups: KeyGroupRange | None = None) -> FullSnapshot:
        wanted = self.key_groups if key_groups is None else key_groups
        taken = [(table, table.snapshot(wanted)) for table in self._tables]
        states = [
            KeptEntries(table.name, table.serializer, partial(_rows, table, snapshots))
            for table, snapshots in taken
        ]

        def let_go() -> None:
            for _, snapshots in taken:
                for snapshot in snapshots.values():
                    snapshot.release()

        return FullSnapshot(self._key_columns, states, wanted, let_go)


def _may_be_packed(parts: Sequence[StateRows]) -> bool:
    """Return True if there are many rows, and the key columns of all files have the same Arrow
    types. The types of different files may differ in nullability, but rarely do."""
    key_types = {tuple(column.type for column in part.keys.columns) for part in parts}
    rows = sum(len(part.keys) for part in parts)
    return rows >= LEAST_PACKED_ROWS and len(key_types) == 1


def _rows(
    table: HeapTable, snapshots: Mapping[int, Any], key_group: int
) -> Iterator[tuple[Key, Any]]:
    """Yield (key, row) for each row of a key group, to write to a file, see RowsOfKeyGroup. After
    the last row, release the snapshot of the key group."""
    entries = snapshots.get(key_group)
    if entries is None:
        return
    for key, state in entries:
        for row in table.rows_of(state):
            yield key, row
    entries.release()
