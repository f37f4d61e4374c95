"""Shares of a limit of memory: what several users hold together, and how much an asker allows."""

from __future__ import annotations

import threading


class MemoryUse:
    """How many bytes several users hold together. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """What all hold now."""
        return self._bytes

    def add(self, more_bytes: int, most_bytes: int | None = None) -> bool:
        """So many bytes more, or fewer; unless they would come to more than `most_bytes`."""
        with self._lock:
            if most_bytes is not None and self._bytes + more_bytes > most_bytes:
                return False
            self._bytes += more_bytes
            return True


class MemoryShare:
    """What one user takes of a use that others take of, too. Used by one thread at a time.

    `most_bytes`: how much this user allows all of them to hold; None for any amount.
    """

    def __init__(self, use: MemoryUse, most_bytes: int | None) -> None:
        self._use = use
        self.most_bytes = most_bytes
        self.taken_bytes = 0

    def take(self, more_bytes: int) -> bool:
        """Take so many bytes more, and say whether they fit; if not, none are taken."""
        if not self._use.add(more_bytes, self.most_bytes):
            return False
        self.taken_bytes += more_bytes
        return True

    def take_all_the_same(self, more_bytes: int) -> None:
        """Take so many bytes more, whether they fit or not."""
        self._use.add(more_bytes)
        self.taken_bytes += more_bytes

    def give_back(self) -> None:
        """Give back all that was taken."""
        self._use.add(-self.taken_bytes)
        self.taken_bytes = 0
