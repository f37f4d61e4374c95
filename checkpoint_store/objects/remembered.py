"""What a process has read of objects, so that it is not read again: objects are immutable (I1)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from cachetools import LRUCache

_K = TypeVar("_K")
_V = TypeVar("_V")


class Remembered(Generic[_K, _V]):
    """Values by key, up to `most`, each counted as its `weight` or as 1; what was not used for
    longest goes first. Safe for several threads; pickles with its values.

    No value may weigh more than `most`.
    """

    def __init__(self, most: int, weight: Callable[[_V], int] | None = None) -> None:
        self._most, self._weight = most, weight
        self._values: LRUCache[_K, _V] = LRUCache(most, weight)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: _K) -> _V | None:
        """The value of a key, None if it is not remembered."""
        # A look at a value makes it the last to go, so it changes the cache.
        with self._lock:
            return self._values.get(key)

    def put(self, key: _K, value: _V) -> None:
        """Remember a value."""
        with self._lock:
            self._values[key] = value

    def forget(self, key: _K) -> None:
        """Let go of a value, if it is remembered."""
        with self._lock:
            self._values.pop(key, None)

    def __getstate__(self) -> tuple[int, Callable[[_V], int] | None, dict[_K, _V]]:
        with self._lock:
            return self._most, self._weight, dict(self._values)

    def __setstate__(self, state: tuple[int, Callable[[_V], int] | None, dict[_K, _V]]) -> None:
        most, weight, values = state
        self.__init__(most, weight)  # type: ignore[misc]
        for key, value in values.items():
            self.put(key, value)
