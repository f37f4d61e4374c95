"""The rows of one state in a database, and their number, which RocksDB does not know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_state.rocksdb.database import ColumnFamily


class EntryCounts:
    """Numbers of entries by key group. `entries`: the numbers at the start."""

    def __init__(self, entries: Mapping[int, int]) -> None:
        self._by_key_group = dict(entries)
        self._all = sum(entries.values())

    def add(self, key_group: int, entries: int) -> None:
        """Add `entries`, possibly negative, to the number of a key group."""
        self._by_key_group[key_group] = self._by_key_group.get(key_group, 0) + entries
        self._all += entries

    def by_key_group(self) -> dict[int, int]:
        """Return the number of each key group that ever had an entry."""
        return self._by_key_group

    def __len__(self) -> int:
        return self._all


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The column families of a state: `family` for the rows, `due_family` for due times, None if
    elements never become due. `counts`: the numbers of entries."""

    family: ColumnFamily
    due_family: ColumnFamily | None
    counts: EntryCounts
