"""A snapshot of heap tables.

Taking a snapshot costs a copy of the bucket arrays. The snapshot of each map is released as soon as
the map's key group has been read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap.copy_on_write_state_table import CopyOnWriteStateTableSnapshot
from spark_state.heap.heap_element_table import HeapElementTable
from spark_state.heap.heap_state_table import HeapStateTable
from spark_state.keyed_state.current_key import Key
from spark_state.keyed_state.full_snapshot import FullSnapshot, KeptEntries
from spark_state.keyed_state.key_columns import KeyColumns

HeapTable = HeapStateTable[Any] | HeapElementTable[Any, Any]


def heap_snapshot(
    key_columns: KeyColumns, tables: Sequence[HeapTable], key_groups: KeyGroupRange
) -> FullSnapshot:
    """Take a snapshot of the entries of `key_groups` in all tables."""
    taken = [(table, table.snapshot(key_groups)) for table in tables]
    states = [
        KeptEntries(table.name, table.serializer, partial(_rows, table, snapshot))
        for table, snapshot in taken
    ]

    def let_go() -> None:
        for _, snapshot in taken:
            snapshot.release_all()

    return FullSnapshot(key_columns, states, key_groups, let_go)


def _rows(
    table: HeapTable, snapshot: CopyOnWriteStateTableSnapshot[Key, Any], key_group: int
) -> Iterator[tuple[Key, Any]]:
    """Yield the file rows of a key group, each with the key, see RowsOfKeyGroup."""
    entries = snapshot.of_key_group(key_group)
    if entries is None:
        return
    for key, state in entries:
        for row in table.rows_of(state):
            yield key, row
    entries.release()
