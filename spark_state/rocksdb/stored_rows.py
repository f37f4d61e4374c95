"""The rows of one state in a database, and their number, which RocksDB does not know."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from spark_state.rocksdb.database import ColumnFamily


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The column families of a state: `family` for the rows, `due_family` for due times, None if
    elements never become due. `counts`: the number of entries of each key group."""

    family: ColumnFamily
    due_family: ColumnFamily | None
    counts: Counter[int]
