"""The stores and subtasks that a host process holds, by store URL.

A run of a query at another parallelism replaces the subtasks of the one before. What no request has
used for a while is dropped: its state is in the store. One store that is slow to open delays
requests for itself only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

from spark_state.host.epoch_request import EpochRequest
from spark_state.host.executor import Executor
from spark_state.host.host_death import HeldMemory
from spark_state.host.maintenance import Maintenance
from spark_state.host.store_session import StoreBegunAnewError, StoreSession
from spark_state.host.subtask_backends import SubtaskBackends
from spark_state.host.subtask_session import SubtaskSession


class Sessions:
    """Safe to use from several threads. `clock` gives seconds; `executor`: the one that the process
    belongs to, None if it belongs to none."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, executor: Executor | None = None
    ) -> None:
        self._clock = clock
        self._process = psutil.Process()
        self._backends = SubtaskBackends(executor)
        self._lock = threading.Lock()
        self._held: dict[str, _HeldStore] = {}
        self._maintenance = Maintenance()

    def __len__(self) -> int:
        """The number of stores held."""
        return len(self._held)

    @contextmanager
    def subtask(self, request: EpochRequest) -> Iterator[SubtaskSession]:
        """The session that serves this request; it is kept at least until the context ends.

        Raises FencedError for an older run (I9), and what opening the store raises.
        """
        with self._lock:
            held = self._held.setdefault(request.store_url, self._new_store())
            held.users += 1
        try:
            yield held.subtask(request)
        finally:
            with self._lock:
                held.users -= 1
                held.last_used = self._clock()

    def held_memory(self) -> HeldMemory:
        """What the process has in memory."""
        return HeldMemory(self._process.memory_info().rss, self._backends.memory.state.bytes)

    def drop_unused(self, seconds: float) -> None:
        """Drop what is not in use and was last used longer ago than this."""
        limit = self._clock() - seconds
        dropped = []  # their state is given up after the lock
        with self._lock:
            for url, held in list(self._held.items()):
                if not held.users and held.last_used < limit:
                    dropped.append(self._held.pop(url))
        for held in dropped:
            held.close()

    def close(self) -> None:
        """Wait for snapshots and housekeeping under way, and remove local files."""
        self._maintenance.close()
        self.remove_local_files()

    def remove_local_files(self) -> None:
        """Remove what is on the local disk. No subtask is used any more."""
        self._backends.close()

    def _new_store(self) -> _HeldStore:
        return _HeldStore(self._maintenance, self._backends)


class _HeldStore:
    """One store and its subtasks. `users` and `last_used` belong to `Sessions`."""

    def __init__(self, maintenance: Maintenance, backends: SubtaskBackends) -> None:
        self.users = 0
        self.last_used = 0.0
        self._backends = backends
        self._maintenance = maintenance
        self._lock = threading.Lock()
        self._store: StoreSession | None = None
        self._subtasks: dict[tuple[int, int], SubtaskSession] = {}

    def subtask(self, request: EpochRequest) -> SubtaskSession:
        while True:
            store = self._opened(request)
            try:
                store.run(request.task.run_id)
            except StoreBegunAnewError:
                self._forget(store)
                continue
            store.check_metadata(request)
            with self._lock:
                if self._store is store:
                    store.run(request.task.run_id)  # a newer run may have come meanwhile
                    return self._kept(request, store)

    def _opened(self, request: EpochRequest) -> StoreSession:
        with self._lock:
            if self._store is None:
                self._store = StoreSession(request, self._maintenance)
            return self._store

    def _kept(self, request: EpochRequest, store: StoreSession) -> SubtaskSession:
        key = (request.spec.parallelism, request.task.subtask)
        if key not in self._subtasks:
            for other in [k for k in self._subtasks if k[0] != key[0]]:
                self._subtasks.pop(other).close()
            self._subtasks[key] = SubtaskSession(request, store, self._maintenance, self._backends)
        return self._subtasks[key]

    def _forget(self, store: StoreSession) -> None:
        with self._lock:
            if self._store is store:
                self._store = None
                self._close_subtasks()

    def close(self) -> None:
        """Give up the state of all subtasks."""
        with self._lock:
            self._close_subtasks()

    def _close_subtasks(self) -> None:
        for subtask in self._subtasks.values():
            subtask.close()
        self._subtasks.clear()
