"""Keyed state of one subtask on the Python heap: a table for each state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import pyarrow as pa

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap.heap_element_table import HeapElementTable
from spark_state.heap.heap_snapshot import HeapSnapshot
from spark_state.heap.heap_state_table import HeapStateTable
from spark_state.keyed_state.keyed_element_table import DueTime
from spark_state.keyed_state.keyed_state_backend import Due, KeyedStateBackend
from spark_state.keyed_state.state_rows import from_batch, state_columns, to_table
from spark_state.keyed_state.state_serializer import StateSerializer

HeapTable = HeapStateTable[Any] | HeapElementTable[Any, Any]


class HeapKeyedStateBackend(KeyedStateBackend[HeapTable]):
    """A commit, a rollback and an undo cost O(changes); a snapshot copies no entry."""

    def _new_value_table(self, name: str, serializer: StateSerializer[Any]) -> HeapTable:
        return HeapStateTable(name, serializer, self.key_groups, self._current)

    def _new_element_table(
        self, name: str, serializer: StateSerializer[Any], due_time: DueTime | None
    ) -> HeapTable:
        return HeapElementTable(name, serializer, self.key_groups, self._current, due_time)

    def _due(self, name: str, until_ms: int) -> Iterator[Due]:
        for time_ms, (key_group, key, element) in self._elements(name).due(until_ms):
            yield Due(time_ms, key, key_group, element)

    def next_due_ms(self, name: str) -> int | None:
        return self._elements(name).next_due_ms()

    def _elements(self, name: str) -> HeapElementTable[Any, Any]:
        table = self._tables[name]
        assert isinstance(table, HeapElementTable), f"nothing of {name!r} is ever due"
        return table

    def __len__(self) -> int:
        return sum(map(len, self._tables.values()))

    def entries_by_key_group(self) -> list[int]:
        entries = [0] * len(self.key_groups)
        for table in self._tables.values():
            for key_group, size in table.sizes().items():
                entries[key_group - self.key_groups.start] += size
        return entries

    def number_of_changes(self) -> int:
        return sum(table.number_of_changes() for table in self._tables.values())

    def changes(self) -> pa.Table:
        return to_table(self._key_columns, [table.changes() for table in self._tables.values()])

    def _seal(self) -> None:
        for table in self._tables.values():
            table.seal()

    def _rollback(self) -> None:
        for table in self._tables.values():
            table.rollback()

    def _undo_sealed(self) -> None:
        for table in self._tables.values():
            table.undo_sealed()

    def apply(
        self, batches: Iterable[pa.RecordBatch], states: Collection[str] | None = None
    ) -> None:
        for batch in batches:
            in_file = {column.name for column in state_columns(batch.schema)}
            applied = in_file if states is None else in_file.intersection(states)
            unknown = applied - self._serializers.keys()
            assert not unknown, f"states {unknown} were not announced"
            serializers = {name: self._serializers[name] for name in applied}
            for entries in from_batch(self._key_columns, serializers, batch):
                self._tables[entries.name].apply(entries)

    def snapshot(self, key_groups: KeyGroupRange | None = None) -> HeapSnapshot:
        wanted = self.key_groups if key_groups is None else key_groups
        return HeapSnapshot(self._key_columns, list(self._tables.values()), wanted)

    def check_invariants(self) -> None:
        """Assert the invariants of every table."""
        for table in self._tables.values():
            table.check_invariants()
