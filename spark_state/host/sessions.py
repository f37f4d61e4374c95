"""The stores and subtasks that a host process holds, by store URL.

A run of a query at another parallelism replaces the subtasks of the one before. What no request has
used for a while is dropped: its state is in the store. If the limit of memory is reached, stores of
queries that have ended are dropped earlier, see idle_stores. One store that is slow to open delays
requests for itself only.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

from spark_state.host.epoch_request import EpochRequest
from spark_state.host.executor import Executor
from spark_state.host.host_death import HeldMemory
from spark_state.host.idle_stores import IdleStores
from spark_state.host.maintenance import Maintenance
from spark_state.host.store_session import StoreBegunAnewError, StoreSession
from spark_state.host.subtask_backends import SubtaskBackends
from spark_state.host.subtask_session import SubtaskSession

_log = logging.getLogger(__name__)


class Sessions:
    """Safe to use from several threads. `clock` gives seconds; `executor`: the one that the process
    belongs to, None if it belongs to none."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, executor: Executor | None = None
    ) -> None:
        self._clock = clock
        self._process = psutil.Process()
        self._backends = SubtaskBackends(executor, self._let_go)
        self._lock = threading.Lock()
        self._letting_go = threading.Lock()
        self._held: dict[str, _HeldStore] = {}
        self._idle = IdleStores()
        self._maintenance = Maintenance()

    def __len__(self) -> int:
        """The number of stores held."""
        return len(self._held)

    @contextmanager
    def subtask(self, request: EpochRequest) -> Iterator[SubtaskSession]:
        """The session that serves this request; it is kept at least until the context ends.

        Raises FencedError for an older run (I9), and what opening the store raises.
        """
        url, task = request.store_url, request.task
        with self._lock:
            held = self._held.setdefault(url, self._new_store())
            self._idle.note_ended(task.ended_runs)
            if not held.users:
                self._idle.begin_use(url, task.run_id, self._clock())
            held.users += 1
        try:
            yield held.subtask(request)
        finally:
            with self._lock:
                held.users -= 1
                if not held.users:
                    self._idle.end_use(url, self._clock())

    def held_memory(self) -> HeldMemory:
        """What the process has in memory."""
        return HeldMemory(self._process.memory_info().rss, self._backends.memory.state.bytes)

    def drop_unused(self, seconds: float) -> None:
        """Drop what is not in use and was last used longer ago than this."""
        now = self._clock()
        dropped = []  # their state is given up after the lock
        with self._lock:
            for url, held in list(self._held.items()):
                if not held.users and self._idle.idle_seconds(url, now) > seconds:
                    dropped.append(self._held.pop(url))
        for held in dropped:
            held.close()

    def _let_go(self, fits: Callable[[], bool]) -> None:
        """Drop stores with state in memory whose queries have ended, until it fits. What was idle
        for longest goes first. Another subtask that needs memory waits, and sees what is free."""
        with self._letting_go:
            while not fits():
                dropped = self._pop_ended()
                if dropped is None:
                    return
                dropped.close()

    def _pop_ended(self) -> _HeldStore | None:
        now = self._clock()
        with self._lock:
            ended = [
                (self._idle.idle_seconds(url, now), url)
                for url, held in self._held.items()
                if not held.users and held.frees_memory() and self._idle.has_ended(url, now)
            ]
            if not ended:
                return None
            idle_seconds, url = max(ended)
            _log.warning(
                "spark.cowstate.maxMemoryMB is reached: the state of %s, which nobody has used for "
                "%.1f s, is let go of. It is in the store, and is read again if the query goes on",
                url,
                idle_seconds,
            )
            return self._held.pop(url)

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
    """One store and its subtasks. `users` belongs to `Sessions`."""

    def __init__(self, maintenance: Maintenance, backends: SubtaskBackends) -> None:
        self.users = 0
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

    def frees_memory(self) -> bool:
        """Whether to close it frees memory now: a snapshot that is being written holds the state
        until it ends."""
        subtasks = list(self._subtasks.values())
        return any(subtask.state.memory.bytes for subtask in subtasks) and not any(
            subtask.snapshots.is_under_way() for subtask in subtasks
        )

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
