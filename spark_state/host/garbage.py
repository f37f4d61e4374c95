"""Keeping Python's cyclic garbage collector away from the state.

A full collection visits every entry of the state, so what has survived an epoch is frozen: no
collection looks at it any more. Cyclic garbage that was frozen along is freed by a full collection
now and then, at most 1% of the time and at most once a minute.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable

_YOUNG_OBJECTS = 200_000
_MIN_SECONDS_BETWEEN = 60.0
_MAX_SHARE_OF_TIME = 0.01


class FrozenGarbage:
    """When to freeze and when to collect. `clock` gives seconds. Safe to use from several
    threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._next = clock() + _MIN_SECONDS_BETWEEN

    def begin(self) -> None:
        """Freeze what the process begins with."""
        gc.set_threshold(_YOUNG_OBJECTS, 50, 1000)
        gc.freeze()

    def freeze(self) -> None:
        """Freeze what there is, less the youngest garbage. Call it after each epoch."""
        if self._lock.acquire(blocking=False):  # else a collection is under way, and freezes
            try:
                gc.collect(0)
                gc.freeze()
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
