"""The keyed state of one subtask on the Python heap: one table per state."""

from __future__ import annotations

from typing import Any

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap.heap_element_table import HeapElementTable
from spark_state.heap.heap_snapshot import HeapTable, heap_snapshot
from spark_state.heap.heap_state_table import HeapStateTable
from spark_state.keyed_state.full_snapshot import FullSnapshot
from spark_state.keyed_state.keyed_element_table import DueTime
from spark_state.keyed_state.keyed_state_backend import KeyedStateBackend
from spark_state.keyed_state.object_sizes import FEW
from spark_state.keyed_state.state_serializer import StateSerializer
from spark_state.state_descriptor import StateDescriptor


class HeapKeyedStateBackend(KeyedStateBackend[HeapTable]):
    """A backend on the heap. Commit, rollback and undo cost O(changes); a snapshot copies no
    entry."""

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

    def memory_bytes(self) -> int:
        return sum(table.memory_bytes() for table in self._tables)

    def bytes_on_heap(self, looked_at: int = FEW) -> int:
        return sum(
            table.memory_bytes(looked_at) + table.undo_bytes(looked_at) for table in self._tables
        )

    def snapshot(self, key_groups: KeyGroupRange | None = None) -> FullSnapshot:
        wanted = self.key_groups if key_groups is None else key_groups
        return heap_snapshot(self._key_columns, self._tables, wanted)

    def check_invariants(self) -> None:
        """Assert the invariants of every table."""
        for table in self._tables:
            table.check_invariants()
