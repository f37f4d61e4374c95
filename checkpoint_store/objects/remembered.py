"""Memory of values that a process has read from objects. Objects are immutable, so values stay true
(I1)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from cachetools import LRUCache

_K = TypeVar("_K")
_V = TypeVar("_V")


class Remembered(Generic[_K, _V]):
    """Values by key, with a total weight of at most `most`. The weight of a value is
    `weight(value)`, or 1 without `weight`. The value that was unused for the longest time is
    dropped first. Safe for several threads; pickles with its values.

    No value may weigh more than `most`.
    """

    def __init__(
        self,
        most: int,
        weight: Callable[[_V], int] | None = None,
        values: Iterable[tuple[_K, _V]] = (),
    ) -> None:
        self._most, self._weight = most, weight
        self._values: LRUCache[_K, _V] = LRUCache(most, weight)
        self._values.update(values)
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

    def __reduce__(self) -> tuple[type[Remembered[_K, _V]], tuple[Any, ...]]:
        with self._lock:
            return Remembered, (self._most, self._weight, [*self._values.items()])
