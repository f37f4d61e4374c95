"""An index of elements by due time, for timers that fire and values that expire.

An entry is (key group, key, element). The index groups entries by due time and keeps the times
sorted. Adding an entry costs O(log of the number of different times). Finding the due entries costs
O(number of due entries). Every put and remove of an element also updates the index, even in a
restore or an undo. So files need not contain the index.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import getsizeof
from typing import Any

from sortedcontainers import SortedDict  # type: ignore[import-untyped]

DueEntry = tuple[int, tuple[Any, ...], Any]
_ENTRY_BYTES = getsizeof((0, (), 0))


class DueIndex:
    """Entries by due time, in milliseconds since 1970."""

    def __init__(self) -> None:
        # The entries of one time are the keys of a dictionary, which keeps the order of insertion.
        self._entries: SortedDict[int, dict[DueEntry, None]] = SortedDict()

    def note(self, time_ms: int, entry: DueEntry) -> None:
        entries = self._entries.get(time_ms)
        if entries is None:
            entries = self._entries[time_ms] = {}
        entries[entry] = None

    def forget(self, time_ms: int, entry: DueEntry) -> None:
        """Remove an entry that was noted with this due time."""
        entries = self._entries[time_ms]
        del entries[entry]
        if not entries:
            del self._entries[time_ms]

    def next_ms(self) -> int | None:
        """Return the earliest due time, None if the index has no entry."""
        return self._entries.peekitem(0)[0] if self._entries else None

    def due(self, until_ms: int) -> Iterator[tuple[int, DueEntry]]:
        """Yield (time, entry) for the entries due at `until_ms` or before, the earliest time first.
        The index must not change during the iteration."""
        for time_ms in self._entries.irange(maximum=until_ms):
            for entry in self._entries[time_ms]:
                yield time_ms, entry

    def bytes_of_entry(self, time_ms: int) -> float:
        """Estimate the bytes that the index takes for one entry with this due time. The bytes of
        shared structures are divided equally among the entries."""
        of_times = getsizeof(self._entries) / len(self._entries)
        entries = self._entries[time_ms]
        return (of_times + getsizeof(time_ms) + getsizeof(entries)) / len(entries) + _ENTRY_BYTES

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))
