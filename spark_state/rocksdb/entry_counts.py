"""How many entries each key group has; the database does not know."""

from __future__ import annotations


class EntryCounts:
    """Numbers of entries by key group."""

    def __init__(self) -> None:
        self._by_key_group: dict[int, int] = {}
        self._all = 0

    def add(self, key_group: int, entries: int) -> None:
        """So many more of a key group, or fewer."""
        self._by_key_group[key_group] = self._by_key_group.get(key_group, 0) + entries
        self._all += entries

    def by_key_group(self) -> dict[int, int]:
        """The number of each key group that ever had one."""
        return self._by_key_group

    def __len__(self) -> int:
        return self._all
