"""Keeps Python's cyclic garbage collector away from the state.

A full collection visits every entry of the state. So objects are frozen after a few collections of
the youngest generation: Python's collector does not visit frozen objects. Some frozen objects later
become cyclic garbage; a full collection of all objects frees this garbage now and then, for at most
1% of the time and at most once a minute.

Python by itself collects the youngest generation when many objects have been added since the last
collection. Most objects of an epoch are freed without a collection, when their last reference goes.
So the host starts no collection of its own after an epoch, except before it freezes objects.
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
    """Decides when to freeze and when to collect. `clock` gives seconds. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._next = clock() + _MIN_SECONDS_BETWEEN
        self._frozen_after = _young_collections()

    def begin(self) -> None:
        """Freeze the objects that the process begins with."""
        gc.set_threshold(_YOUNG_OBJECTS, 50, 1000)
        gc.freeze()

    def freeze_if_due(self) -> bool:
        """Collect the youngest generation and freeze all objects, if a few collections have run
        since the last call that froze objects. Return True if the call has frozen objects. Call
        this after each epoch."""
        if _young_collections() - self._frozen_after < _YOUNG_COLLECTIONS:
            return False
        if not self._lock.acquire(blocking=False):  # a collection in progress freezes, too
            return False
        try:
            gc.collect(0)
            gc.freeze()
            self._frozen_after = _young_collections()
            return True
        finally:
            self._lock.release()

    def collect_if_due(self) -> bool:
        """Free frozen garbage if a collection is due. Return True if the call has collected. All
        threads wait during the collection."""
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
    """Return how often this process has collected the youngest generation."""
    count: int = gc.get_stats()[0]["collections"]
    return count
