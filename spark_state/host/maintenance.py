"""Work of a host beside its tasks: snapshots, signs of life, and the clean-up of stores.

No task waits for them; an epoch may wait for a part of a snapshot. Each kind has threads of its
own, so that a large snapshot delays neither clean-up nor a part, and nothing delays signs of life.
At most one job of a store runs at once, and stores with work take turns, so that neither a large
snapshot nor a store that does not answer delays the other stores of the host, while a thread is
free. A part is in the queue of its subtask.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self, TypeVar

_T = TypeVar("_T")

# Snapshots hold what they write in memory; clean-up mostly waits for its store.
_SNAPSHOT_THREADS = 2
_HOUSEKEEPING_THREADS = 4
_SIGN_THREADS = 4


class FairThreads:
    """Runs jobs of several stores, each store's in order, in at most `threads` threads."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._jobs: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}
        self._change = threading.Condition()

    def submit(self, store: str, job: Callable[[], _T]) -> Future[_T]:
        """Run a job of this store when it is its turn. It may be cancelled until then."""
        future: Future[_T] = Future()
        with self._change:
            jobs = self._jobs.setdefault(store, deque())
            jobs.append((future, job))
            if len(jobs) == 1:
                self._pool.submit(self._run_first, store)
        return future

    def _run_first(self, store: str) -> None:
        future, job = self._jobs[store][0]
        if future.set_running_or_notify_cancel():
            try:
                result = job()
            except BaseException as error:  # whoever waits for the job gets it
                future.set_exception(error)
            else:
                future.set_result(result)
        with self._change:
            self._jobs[store].popleft()
            if self._jobs[store]:
                self._pool.submit(self._run_first, store)
            else:
                del self._jobs[store]
                self._change.notify_all()

    def close(self) -> None:
        """Wait for all jobs."""
        with self._change:
            self._change.wait_for(lambda: not self._jobs)
        self._pool.shutdown()


class Maintenance:
    """The maintenance threads of a host. A context manager, at whose end it is closed. `clock`
    gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.snapshots = FairThreads(_SNAPSHOT_THREADS, "cowstate-snapshots")
        self.parts = FairThreads(_SNAPSHOT_THREADS, "cowstate-parts")
        self.housekeeping = FairThreads(_HOUSEKEEPING_THREADS, "cowstate-housekeeping")
        self.signs = FairThreads(_SIGN_THREADS, "cowstate-signs")

    def close(self) -> None:
        """Wait for what is under way."""
        for threads in (self.snapshots, self.parts, self.housekeeping, self.signs):
            threads.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
