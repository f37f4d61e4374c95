"""Counts the bytes that several users of memory hold together, and keeps users to a limit."""

from __future__ import annotations

import threading


class MemoryUse:
    """Number of bytes that several users hold together. Safe to use from several threads. Only
    `add` sets `bytes`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.bytes = 0

    def add(self, more_bytes: int, most_bytes: int | None = None) -> bool:
        """Add bytes, or subtract with a negative number. Returns False, and adds nothing, if the
        sum would be above `most_bytes`."""
        with self._lock:
            if most_bytes is not None and self.bytes + more_bytes > most_bytes:
                return False
            self.bytes += more_bytes
            return True


class MemoryShare:
    """The bytes of one user, where all users together have a limit. Used by one thread at a time.

    `use`: counts the bytes of all users. `most_bytes`: the limit, None for no limit; only `take`
    keeps to the limit. `taken_bytes`: bytes of this user.
    """

    def __init__(self, use: MemoryUse, most_bytes: int | None) -> None:
        self._use = use
        self.most_bytes = most_bytes
        self.taken_bytes = 0

    def take(self, more_bytes: int) -> bool:
        """Take more bytes. Returns False, and takes nothing, if the bytes do not fit."""
        if not self._use.add(more_bytes, self.most_bytes):
            return False
        self.taken_bytes += more_bytes
        return True

    def take_all_the_same(self, more_bytes: int) -> None:
        """Take more bytes, even if the bytes do not fit."""
        self._use.add(more_bytes)
        self.taken_bytes += more_bytes

    def give_back(self) -> None:
        """Give back all taken bytes."""
        self._use.add(-self.taken_bytes)
        self.taken_bytes = 0
