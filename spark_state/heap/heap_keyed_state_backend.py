"""The keyed state of one subtask on the Python heap: one table per state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap.heap_element_table import HeapElementTable
from spark_state.heap.heap_state_table import HeapStateTable
from spark_state.keyed_state.current_key import Key
from spark_state.keyed_state.full_snapshot import FullSnapshot, KeptEntries
from spark_state.keyed_state.keyed_state_backend import KeyedStateBackend
from spark_state.keyed_state.keyed_tables import DueTime
from spark_state.keyed_state.object_sizes import FEW
from spark_state.keyed_state.state_rows import StateRows, StateSerializer
from spark_state.state_descriptor import StateDescriptor

LEAST_PACKED_ROWS = 1 << 14
"""Number of rows of a state from which the state's rows of a snapshot stay Arrow in a restore."""

HeapTable = HeapStateTable[Any] | HeapElementTable[Any, Any]


class HeapKeyedStateBackend(KeyedStateBackend[HeapTable]):
    """A backend on the heap. Commit, rollback and undo cost O(changes); a snapshot copies no entry,
    only the bucket arrays."""

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

    def restore(
        self, batches: Iterable[pa.RecordBatch], states: Collection[str] | None = None
    ) -> None:
        parts: dict[str, list[StateRows]] = defaultdict(list)
        for batch in batches:
            for rows in self._rows_of_states(batch, states):
                parts[rows.name].append(rows)
        for name, of_state in parts.items():
            table = self._states[name].table
            is_large = sum(len(rows.keys) for rows in of_state) >= LEAST_PACKED_ROWS
            if is_large and isinstance(table, HeapStateTable):
                table.pack(of_state)
            else:
                for rows in of_state:
                    table.apply(rows.entries())

    def read_ahead(self, keys: Sequence[Key], key_groups: Sequence[int]) -> None:
        for table in self._tables:
            if isinstance(table, HeapStateTable):
                table.read_ahead(keys, key_groups)

    def memory_bytes(self) -> int:
        return sum(table.memory_bytes() for table in self._tables)

    def bytes_on_heap(self, looked_at: int = FEW) -> int:
        return sum(
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


def _rows(
    table: HeapTable, snapshots: Mapping[int, Any], key_group: int
) -> Iterator[tuple[Key, Any]]:
    """Yield the file rows of a key group, each with the key, see RowsOfKeyGroup. The snapshot of
    the key group is released when all rows have been read."""
    entries = snapshots.get(key_group)
    if entries is None:
        return
    for key, state in entries:
        for row in table.rows_of(state):
            yield key, row
    entries.release()
