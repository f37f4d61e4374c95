"""Memory of values that a process has read from objects. Objects are immutable, so values stay true
(I1)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from cachetools import LRUCache

_K = TypeVar("_K")
_V = TypeVar("_V")


class Remembered(Generic[_K, _V]):
    """Values by key, with a total weight of at most `most`. The weight of a value is
    `weight(value)`, or 1 without `weight`. The value that was unused for the longest time goes
    first. Safe for several threads; pickles with its values.

    No value may weigh more than `most`.
    """

    def __init__(self, most: int, weight: Callable[[_V], int] | None = None) -> None:
        self._most, self._weight = most, weight
        self._values: LRUCache[_K, _V] = LRUCache(most, weight)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: _K) -> _V | None:
        """Return the value of a key, None if no value is remembered."""
        # Reading moves the value to the end of the queue, and so changes the cache.
        with self._lock:
            return self._values.get(key)

    def put(self, key: _K, value: _V) -> None:
        with self._lock:
            self._values[key] = value

    def forget(self, key: _K) -> None:
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
