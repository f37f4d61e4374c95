"""A snapshot of a heap backend, or of some of its key groups, written while the backend changes.

Taking it costs a copy of the bucket arrays. `write`, usually in a background thread, walks the
entries key group by key group, and releases each map's snapshot as soon as its key group is read.
What it holds meanwhile is one key group as Python objects, and one file as Arrow: a snapshot of
many rows is several files, each of some key groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from spark_state.heap.copy_on_write_state_table import CopyOnWriteStateTableSnapshot
from spark_state.heap.heap_state_table import HeapStateTable
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.keyed_state_backend import SnapshotFiles
from spark_state.keyed_state.state_rows import StateEntries, to_table
from spark_state.keyed_state.state_serializer import StateSerializer

ROWS_OF_FILE = 1 << 20

TableSnapshot = CopyOnWriteStateTableSnapshot[tuple[Any, ...], None, Any]


class HeapSnapshot:
    """A KeyedStateSnapshot of these tables. A file has `ROWS_OF_FILE` rows at least, but for the
    last one; a key group is in one file."""

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

    def write(self, files: SnapshotFiles) -> tuple[StateHandle, ...]:
        """Write all entries as puts; none means no file."""
        try:
            return tuple(
                files.write_snapshot(rows, key_groups) for rows, key_groups in self._files()
            )
        finally:
            self.release()

    def release(self) -> None:
        """Give up what is not written yet. Safe to call again."""
        for _, _, snapshot in self._snapshots:
            snapshot.release_all()

    def _files(self) -> Iterator[tuple[pa.Table, KeyGroupRange]]:
        """The rows of each file, and the key groups that it has them for."""
        first, tables, rows = self.key_groups.start, [], 0
        for key_group in self.key_groups:
            table = self._rows_of(key_group)
            if table.num_rows:
                tables.append(table)
                rows += table.num_rows
            if rows >= ROWS_OF_FILE:
                yield pa.concat_tables(tables), KeyGroupRange(first, key_group)
                first, tables, rows = key_group + 1, [], 0
        if tables:
            yield pa.concat_tables(tables), KeyGroupRange(first, self.key_groups.end)

    def _rows_of(self, key_group: int) -> pa.Table:
        """The entries of a key group as sorted rows; releases them."""
        return to_table(
            self._key_columns,
            [self._entries(key_group, *of_table) for of_table in self._snapshots],
        )

    @staticmethod
    def _entries(
        key_group: int, name: str, serializer: StateSerializer[Any], snapshot: TableSnapshot
    ) -> StateEntries:
        keys: list[tuple[Any, ...]] = []
        states: list[Any | None] = []
        entries = snapshot.of_key_group(key_group)
        if entries is not None:
            for key, _namespace, state in entries:
                keys.append(key)
                states.append(state)
            entries.release()
        return StateEntries(name, serializer, keys, [key_group] * len(keys), states)
