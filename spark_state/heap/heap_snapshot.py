"""A snapshot of a heap backend, or of some of its key groups, written while the backend changes.

Taking it costs a copy of the bucket arrays; the entries are walked, key group by key group, by
whoever calls `to_table`, usually a background thread, and each map's snapshot is released as soon
as its key group is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap.copy_on_write_state_table import CopyOnWriteStateTableSnapshot
from spark_state.heap.heap_state_table import HeapStateTable
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.state_rows import StateEntries, to_table
from spark_state.keyed_state.state_serializer import StateSerializer

TableSnapshot = CopyOnWriteStateTableSnapshot[tuple[Any, ...], None, Any]


class HeapSnapshot:
    """The entries of all states in `key_groups` at one moment. `to_table` can be called once."""

    def __init__(
        self,
        key_columns: KeyColumns,
        tables: Sequence[HeapStateTable[Any]],
        key_groups: KeyGroupRange,
    ) -> None:
        self.key_groups = key_groups
        self._key_columns = key_columns
        self._snapshots: list[tuple[str, StateSerializer[Any], TableSnapshot]] = [
            (table.name, table.serializer, table.snapshot(key_groups)) for table in tables
        ]

    def to_table(self) -> pa.Table:
        """All entries as a sorted table of puts; releases the snapshot."""
        try:
            return to_table(
                self._key_columns, [self._read(*of_table) for of_table in self._snapshots]
            )
        finally:
            self.release()

    def release(self) -> None:
        """Give up what is not written yet. Safe to call again."""
        for _, _, snapshot in self._snapshots:
            snapshot.release_all()

    @staticmethod
    def _read(name: str, serializer: StateSerializer[Any], snapshot: TableSnapshot) -> StateEntries:
        def rows() -> Iterator[tuple[tuple[Any, ...], int, Any]]:
            for key_group, entries in snapshot.key_group_snapshots():
                for key, _namespace, state in entries:
                    yield key, key_group, state
                entries.release()

        keys: list[tuple[Any, ...]] = []
        key_groups: list[int] = []
        states: list[Any | None] = []
        for key, key_group, state in rows():
            keys.append(key)
            key_groups.append(key_group)
            states.append(state)
        return StateEntries(name, serializer, keys, key_groups, states)
