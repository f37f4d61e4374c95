"""Background threads of a host: for snapshots, for parts of snapshots, for the clean-up of stores,
and for signs of life (see unnamed_files).

Tasks do not wait for these threads. There is one exception: a run's first epoch may wait for a
part, which is a snapshot of some key groups, see snapshot_policy.

Each kind of work has threads of its own, so a large snapshot delays no other kind of work. Stores
with the same kind of work take turns, and each store has at most one running job of a kind. So a
large snapshot, or a store that does not answer, does not delay other stores of the host while a
thread is free. For parts, subtasks take turns instead of stores.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self, TypeVar

_T = TypeVar("_T")

# Snapshots hold their data in memory while they are written; clean-up mostly waits for its store.
_SNAPSHOT_THREADS = 2
_HOUSEKEEPING_THREADS = 4
_SIGN_THREADS = 4


class FairThreads:
    """Runs jobs of several stores in at most `threads` threads; jobs of one store run in order."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._jobs: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}
        self._change = threading.Condition()

    def submit(self, store: str, job: Callable[[], _T]) -> Future[_T]:
        """Run a job when the store's turn comes. The caller may cancel the job until the job
        begins."""
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
            except BaseException as error:  # the error goes to the caller that waits for the job
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
    """The maintenance threads of a host, as a context manager. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.snapshots = FairThreads(_SNAPSHOT_THREADS, "cowstate-snapshots")
        self.parts = FairThreads(_SNAPSHOT_THREADS, "cowstate-parts")
        self.housekeeping = FairThreads(_HOUSEKEEPING_THREADS, "cowstate-housekeeping")
        self.signs = FairThreads(_SIGN_THREADS, "cowstate-signs")

    def close(self) -> None:
        """Wait for all submitted jobs."""
        for threads in (self.snapshots, self.parts, self.housekeeping, self.signs):
            threads.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
