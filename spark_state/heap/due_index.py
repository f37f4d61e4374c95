"""What is due when: entries by time, for timers that fire and values that expire.

An entry is (key group, key, element). Entries of one time are together, and the times are in order,
so that to note one costs O(log of the number of different times), and to find what is due costs
what is due. The index follows its table: it notes and forgets whatever the table puts and removes,
also when the table undoes an epoch. So it is never stored, and a restore builds it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import getsizeof
from typing import Any

from sortedcontainers import SortedDict  # type: ignore[import-untyped]

Entry = tuple[int, tuple[Any, ...], Any]
_ENTRY_BYTES = getsizeof((0, (), 0))


class DueIndex:
    """Entries by time, in milliseconds since 1970."""

    def __init__(self) -> None:
        # Entries are dictionaries without values, which keep the order in which they were noted.
        self._entries: SortedDict[int, dict[Entry, None]] = SortedDict()

    def note(self, time_ms: int, entry: Entry) -> None:
        """`entry` is due at a time."""
        entries = self._entries.get(time_ms)
        if entries is None:
            entries = self._entries[time_ms] = {}
        entries[entry] = None

    def forget(self, time_ms: int, entry: Entry) -> None:
        """`entry`, which was noted for this time, is not there any more."""
        entries = self._entries[time_ms]
        del entries[entry]
        if not entries:
            del self._entries[time_ms]

    def next_ms(self) -> int | None:
        """The earliest time at which an entry is due; None if there is no entry."""
        return self._entries.peekitem(0)[0] if self._entries else None

    def due(self, until_ms: int) -> Iterator[tuple[int, Entry]]:
        """The entries that are due at `until_ms`, with their times, the earliest time first. The
        index may not change meanwhile."""
        for time_ms in self._entries.irange(maximum=until_ms):
            for entry in self._entries[time_ms]:
                yield time_ms, entry

    def bytes_of_entry(self, time_ms: int) -> float:
        """About what the index takes for an entry of this time, in equal shares."""
        of_times = getsizeof(self._entries) / len(self._entries)
        entries = self._entries[time_ms]
        return (of_times + getsizeof(time_ms) + getsizeof(entries)) / len(entries) + _ENTRY_BYTES

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))
