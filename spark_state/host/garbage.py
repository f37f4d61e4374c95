"""Keeping Python's cyclic garbage collector away from the state.

A full collection visits every entry of the state, so what has survived a few young collections is
frozen: no collection looks at it any more. Cyclic garbage that was frozen along is freed by a full
collection now and then, at most 1% of the time and at most once a minute.

A young collection comes by itself, when there are many more objects than at the last one. Most of
what an epoch makes is gone before: to collect after each epoch would visit all of it.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable

_YOUNG_OBJECTS = 500_000
_YOUNG_COLLECTIONS = 4
_MIN_SECONDS_BETWEEN = 60.0
_MAX_SHARE_OF_TIME = 0.01


class FrozenGarbage:
    """When to freeze and when to collect. `clock` gives seconds. Safe to use from several
    threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._next = clock() + _MIN_SECONDS_BETWEEN
        self._frozen_after = _young_collections()

    def begin(self) -> None:
        """Freeze what the process begins with."""
        gc.set_threshold(_YOUNG_OBJECTS, 50, 1000)
        gc.freeze()

    def freeze_if_due(self) -> bool:
        """Freeze what there is, less the youngest garbage, if there were a few young collections
        since the last time; returns whether it was. Call it after each epoch."""
        if _young_collections() - self._frozen_after < _YOUNG_COLLECTIONS:
            return False
        if not self._lock.acquire(blocking=False):  # a collection is under way, and freezes
            return False
        try:
            gc.collect(0)
            gc.freeze()
            self._frozen_after = _young_collections()
            return True
        finally:
            self._lock.release()

    def collect_if_due(self) -> bool:
        """Free frozen garbage if it is time to, and return whether it was. Everything else waits
        meanwhile."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            started = self._clock()
            if started < self._next:
                return False
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            ended = self._clock()
            self._next = ended + max(_MIN_SECONDS_BETWEEN, (ended - started) / _MAX_SHARE_OF_TIME)
            return True
        finally:
            self._lock.release()


def _young_collections() -> int:
    """How many there were in this process."""
    count: int = gc.get_stats()[0]["collections"]
    return count
