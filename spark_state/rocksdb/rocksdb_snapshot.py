"""A full snapshot of states in RocksDB. The rows are read from a checkpoint of the database: a
folder with links to RocksDB's files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.keyed_state.current_key import Key
from spark_state.keyed_state.full_snapshot import FullSnapshot, KeptEntries
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.rocksdb.database import Database, ReadOnlyDatabase
from spark_state.rocksdb.rocksdb_element_table import RocksDBElementTable
from spark_state.rocksdb.rocksdb_state_table import RocksDBStateTable
from spark_state.rocksdb.row_keys import of_key_group
from spark_state.rocksdb.state_rows_format import StateRowsFormat

RocksDBTable = RocksDBStateTable[Any] | RocksDBElementTable[Any, Any]


def rocksdb_snapshot(
    key_columns: KeyColumns,
    tables: Sequence[RocksDBTable],
    key_groups: KeyGroupRange,
    database: Database,
) -> FullSnapshot:
    """Take a snapshot of the entries of `key_groups`, as of the last sealed epoch."""
    checkpoint, at_end = database.checkpoint(), ExitStack()
    at_end.callback(checkpoint.release)

    @cache
    def opened() -> ReadOnlyDatabase:
        return at_end.enter_context(checkpoint.open([table.family.name for table in tables]))

    states = [kept_rows(table.format, table.family.name, opened) for table in tables]
    return FullSnapshot(key_columns, states, key_groups, at_end.close)


def kept_rows(
    rows: StateRowsFormat, family: str, opened: Callable[[], ReadOnlyDatabase]
) -> KeptEntries:
    """Return the entries of a state. `family`: the column family with the state's rows. `opened`:
    returns the open database."""

    def of_group(key_group: int) -> Iterator[tuple[Key, Any]]:
        start, end = of_key_group(key_group), of_key_group(key_group + 1)
        return (rows.entry(*row) for row in opened().rows(family, start, end))

    return KeptEntries(rows.name, rows.serializer, of_group)
