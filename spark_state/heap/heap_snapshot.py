"""A snapshot of a heap backend, or of some of its key groups, written while the backend changes.

Taking it costs a copy of the bucket arrays. `write`, usually in a background thread, walks the
entries key group by key group, and releases each map's snapshot as soon as its key group is read.
What it holds meanwhile is some key groups as Python objects, and one file as Arrow: a snapshot of
many rows is several files, each of some key groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import pyarrow as pa

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from spark_state.heap.copy_on_write_state_table import CopyOnWriteStateTableSnapshot
from spark_state.heap.heap_element_table import HeapElementTable
from spark_state.heap.heap_state_table import HeapStateTable
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.keyed_state_backend import SnapshotFiles
from spark_state.keyed_state.state_rows import StateEntries, to_table
from spark_state.keyed_state.state_serializer import StateSerializer

ROWS_OF_FILE = 1 << 20
# So many entries are Python objects at once and become Arrow together. To make a table for each of
# many small key groups takes longer than to convert their rows.
ROWS_OF_TABLE = 1 << 16

TableSnapshot = CopyOnWriteStateTableSnapshot[tuple[Any, ...], None, Any]


class HeapSnapshot:
    """A KeyedStateSnapshot of these tables. Every file but the last has at least `ROWS_OF_FILE`
    rows, and a key group is in one file."""

    def __init__(
        self,
        key_columns: KeyColumns,
        tables: Sequence[HeapStateTable[Any] | HeapElementTable[Any, Any]],
        key_groups: KeyGroupRange,
    ) -> None:
        self.key_groups = key_groups
        self._key_columns = key_columns
        self._snapshots = [
            _OfTable(table.name, table.serializer, table.rows_of, table.snapshot(key_groups))
            for table in tables
        ]

    def write(self, files: SnapshotFiles) -> tuple[StateHandle, ...]:
        """Write all entries as puts. Without entries there is no file."""
        try:
            return tuple(
                files.write_snapshot(rows, key_groups) for rows, key_groups in self._files()
            )
        finally:
            self.release()

    def release(self) -> None:
        """Give up what is not written yet. Safe to call again."""
        for of_table in self._snapshots:
            of_table.snapshot.release_all()

    def _files(self) -> Iterator[tuple[pa.Table, KeyGroupRange]]:
        """The rows of each file, with its key groups."""
        first, tables, rows = self.key_groups.start, [], 0
        for table, last in self._tables():
            tables.append(table)
            rows += table.num_rows
            if rows >= ROWS_OF_FILE:
                yield pa.concat_tables(tables), KeyGroupRange(first, last)
                first, tables, rows = last + 1, [], 0
        if tables:
            yield pa.concat_tables(tables), KeyGroupRange(first, self.key_groups.end)

    def _tables(self) -> Iterator[tuple[pa.Table, int]]:
        """Tables of the sorted rows of some key groups, each with the last of these; none is
        empty."""
        taken = self._nothing_taken()
        for key_group in self.key_groups:
            for entries, of_table in zip(taken, self._snapshots, strict=True):
                _take(entries, key_group, of_table)
            if sum(len(entries.keys) for entries in taken) >= min(ROWS_OF_TABLE, ROWS_OF_FILE):
                yield self._table(taken), key_group
                taken = self._nothing_taken()
        if any(entries.keys for entries in taken):
            yield self._table(taken), self.key_groups.end

    def _nothing_taken(self) -> list[StateEntries]:
        return [StateEntries(table.name, table.serializer, [], [], []) for table in self._snapshots]

    def _table(self, taken: Sequence[StateEntries]) -> pa.Table:
        return to_table(self._key_columns, taken)


@dataclass(frozen=True, slots=True)
class _OfTable:
    """A snapshot of one table; `rows_of`: what a file holds of a key."""

    name: str
    serializer: StateSerializer[Any]
    rows_of: Callable[[Any], Iterable[Any]]
    snapshot: TableSnapshot


def _take(entries: StateEntries, key_group: int, of_table: _OfTable) -> None:
    """Add the entries of a key group, and release its snapshot."""
    snapshot = of_table.snapshot.of_key_group(key_group)
    if snapshot is None:
        return
    for key, _namespace, state in snapshot:
        before = len(entries.states)
        entries.states.extend(of_table.rows_of(state))
        entries.keys.extend(repeat(key, len(entries.states) - before))
    entries.key_groups.extend(repeat(key_group, len(entries.keys) - len(entries.key_groups)))
    snapshot.release()
