"""Snapshots of all or some key groups of a backend, as files that every backend can read.

Each backend has its own way to keep the entries of one moment while the state changes. FullSnapshot
reads these entries one key group after the other, usually in a background thread. When FullSnapshot
has read a key group, the backend may drop the kept entries of this key group. The memory for the
snapshot is bounded: a few key groups as Python objects, and the rows of one file as Arrow tables. A
snapshot of many rows has several files, each with whole key groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol, cast

import pyarrow as pa

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.operators.epoch_files import AttemptFiles
from spark_state.keyed_state.current_key import Key
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.state_rows import StateEntries, StateSerializer, to_table

ROWS_OF_FILE = 1 << 20
# Number of entries that are Python objects at once and become Arrow together. A table for each of
# many small key groups would take longer than the conversion of the rows.
ROWS_OF_TABLE = 1 << 16

RowsOfKeyGroup = Callable[[int], Iterator[tuple[Key, Any]]]
"""Function that returns the file rows of a key group, each with the key. Called once for each key
group; the caller reads all rows."""


@dataclass(frozen=True, slots=True)
class KeptEntries:
    """The entries of one state at one moment. `name`: the state's name; `rows`: returns the rows of
    a key group."""

    name: str
    serializer: StateSerializer[Any]
    rows: RowsOfKeyGroup


class KeyedStateSnapshot(Protocol):
    """The entries of all states in `key_groups` at one moment. Another thread may write the
    snapshot."""

    key_groups: KeyGroupRange

    def write(self, files: AttemptFiles) -> tuple[StateHandle, ...]:
        """Write the snapshot, and release the snapshot. Call once. Returns the files, which
        together have all entries."""

    def release(self) -> None:
        """Give up all data not yet written. Safe to call again."""


class FullSnapshot:
    """A KeyedStateSnapshot of `states`.

    Every file but the last has at least `ROWS_OF_FILE` rows, and each key group is in one file.
    `let_go`: tells the backend that entries not yet read are no longer needed; called once or more.
    """

    def __init__(
        self,
        key_columns: KeyColumns,
        states: Sequence[KeptEntries],
        key_groups: KeyGroupRange,
        let_go: Callable[[], None],
    ) -> None:
        self.key_groups = key_groups
        self._key_columns = key_columns
        self._states = states
        self._let_go = let_go

    def write(self, files: AttemptFiles) -> tuple[StateHandle, ...]:
        """Write all entries as puts. A snapshot without entries writes no file."""
        try:
            return tuple(
                files.write("snapshot", rows, key_groups) for rows, key_groups in self._files()
            )
        finally:
            self.release()

    def release(self) -> None:
        self._let_go()

    def _files(self) -> Iterator[tuple[pa.Table, KeyGroupRange]]:
        """Yield the rows of each file, with the key groups of the file."""
        first, tables, rows = self.key_groups.start, [], 0
        for table, last in tables_of(self._key_columns, self._states, self.key_groups):
            tables.append(table)
            rows += table.num_rows
            if rows >= ROWS_OF_FILE:
                yield pa.concat_tables(tables), KeyGroupRange(first, last)
                first, tables, rows = last + 1, [], 0
        if tables:
            yield pa.concat_tables(tables), KeyGroupRange(first, self.key_groups.end)


def tables_of(
    key_columns: KeyColumns, states: Sequence[KeptEntries], key_groups: KeyGroupRange
) -> Iterator[tuple[pa.Table, int]]:
    """Yield pairs of a table and the table's last key group. The tables together have all rows.

    A table has one or more whole key groups, sorted by key group and key. No table is empty.
    """
    taken = _none_of(states)
    for key_group in key_groups:
        for entries, state in zip(taken, states, strict=True):
            rows = list(state.rows(key_group))
            cast(list[Key], entries.keys).extend([key for key, _ in rows])
            entries.states.extend([row for _, row in rows])
            entries.key_groups.extend(repeat(key_group, len(rows)))
        if sum(len(entries.keys) for entries in taken) >= min(ROWS_OF_TABLE, ROWS_OF_FILE):
            yield to_table(key_columns, taken), key_group
            taken = _none_of(states)
    if any(entries.keys for entries in taken):
        yield to_table(key_columns, taken), key_groups.end


def _none_of(states: Sequence[KeptEntries]) -> list[StateEntries]:
    return [StateEntries(state.name, state.serializer, [], [], []) for state in states]
