"""Which checkpoint uses which state files. Pure.

A file may be named by many checkpoints: a changelog by every one until a snapshot replaces it. It
may be deleted with its last user, never before (I8).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable


class SharedStateRegistry:
    """Reference counts of files, by registered checkpoint."""

    def __init__(self) -> None:
        self._names: dict[str, frozenset[str]] = {}
        self._users: Counter[str] = Counter()

    def __contains__(self, checkpoint: str) -> bool:
        return checkpoint in self._names

    def checkpoints(self) -> frozenset[str]:
        """The registered checkpoints."""
        return frozenset(self._names)

    def register(self, checkpoint: str, names: Iterable[str]) -> None:
        """Count `checkpoint` as a user of `names`. To register it twice is a bug."""
        assert checkpoint not in self._names, f"{checkpoint} is registered already"
        used = frozenset(map(sys.intern, names))
        self._names[checkpoint] = used
        self._users.update(used)

    def unregister(self, checkpoint: str) -> frozenset[str]:
        """Forget `checkpoint`; the names that have no user left."""
        names = self._names.pop(checkpoint)
        self._users.subtract(names)
        unused = frozenset(name for name in names if not self._users[name])
        for name in unused:
            del self._users[name]
        return unused

    def check_invariants(self) -> None:
        """Every count is the number of registered users, and never zero."""
        expected = Counter(name for names in self._names.values() for name in names)
        assert expected == self._users, (expected, self._users)
        assert all(self._users.values()), self._users
