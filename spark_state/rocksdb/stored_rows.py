"""The rows that a database has of one state, and how many; the database does not know that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_state.rocksdb.database import ColumnFamily


class EntryCounts:
    """Numbers of entries by key group; at first `entries`."""

    def __init__(self, entries: Mapping[int, int]) -> None:
        self._by_key_group = dict(entries)
        self._all = sum(entries.values())

    def add(self, key_group: int, entries: int) -> None:
        """So many more of a key group, or fewer."""
        self._by_key_group[key_group] = self._by_key_group.get(key_group, 0) + entries
        self._all += entries

    def by_key_group(self) -> dict[int, int]:
        """The number of each key group that ever had one."""
        return self._by_key_group

    def __len__(self) -> int:
        return self._all


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The column families of a state: of its rows, and of times if something of it becomes due.
    `counts`: how many entries they have."""

    family: ColumnFamily
    due_family: ColumnFamily | None
    counts: EntryCounts
