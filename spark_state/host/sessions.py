"""The stores and subtasks of a host process, by store URL.

If a query runs with another parallelism than before, new subtasks replace the earlier subtasks. The
host drops stores without a request for a while; the state is in object storage. At the memory
limit, the host gives up the state of ended queries earlier, see run_rhythms. A store that is slow
to open delays only requests for this store.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from spark_state.executor import Executor
from spark_state.host.run_rhythms import RunRhythms
from spark_state.subtasks.epoch_request import EpochRequest, EpochTask, forget_operators
from spark_state.subtasks.maintenance import Maintenance
from spark_state.subtasks.store_session import StoreBegunAnewError, StoreSession
from spark_state.subtasks.subtask_backends import SubtaskBackends
from spark_state.subtasks.subtask_memory import HostMemory
from spark_state.subtasks.subtask_session import SubtaskSession

_log = logging.getLogger(__name__)

_SECONDS_BETWEEN_SIGNS = 2.0


class Sessions:
    """The open stores of a host process. Thread-safe. `clock` gives seconds; `executor`: the
    executor that the process belongs to, None if the process belongs to no executor."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, executor: Executor | None = None
    ) -> None:
        self._clock = clock
        self._backends = SubtaskBackends(executor, HostMemory(self._let_go), clock)
        self._lock = threading.Lock()
        self._letting_go = threading.Lock()
        self._held: dict[str, _HeldStore] = {}
        self._runs = RunRhythms()
        self._maintenance = Maintenance()
        self._shown_alive = clock()

    def __len__(self) -> int:
        """The number of open stores."""
        return len(self._held)

    @contextmanager
    def subtask(self, request: EpochRequest) -> Iterator[SubtaskSession]:
        """Yield the session for a request. The session is kept at least until the `with` block
        ends.

        Raises FencedError for an older run (I9), and the errors of opening the store.
        """
        with self._lock:
            new = _HeldStore(self._maintenance, self._backends)
            held = self._held.setdefault(request.store_url, new)
            held.users += 1
        try:
            session = held.subtask(request)
            with self._served(held, request.task):
                yield session
        finally:
            with self._lock:
                held.users -= 1
                held.last_used = self._clock()

    @contextmanager
    def _served(self, held: _HeldStore, task: EpochTask) -> Iterator[None]:
        """Count a request as in progress during the `with` block."""
        with self._lock:
            held.run_id = task.run_id
            self._runs.begin_use(task.run_id, self._clock())
            self._runs.note_ended(task.ended_runs)
        try:
            yield
        finally:
            with self._lock:
                self._runs.end_use(task.run_id, self._clock())

    def drop_unused(self, seconds: float) -> None:
        """Drop stores without a request for more than `seconds`, and local copies of subtasks that
        ended more than `seconds` ago."""
        limit = self._clock() - seconds
        dropped = []  # their state is released without the lock
        with self._lock:
            for url, held in list(self._held.items()):
                if not held.users and held.last_used < limit:
                    dropped.append(self._held.pop(url))
            self._runs.forget_others(filter(None, (held.run_id for held in self._held.values())))
        for held in dropped:
            held.close()
        if dropped:
            forget_operators()
        self._backends.remove_unused_copies(seconds)

    def show_alive(self) -> None:
        """Put signs of life, if due, beside files that no barrier names yet, see unnamed_files.
        Call this every few seconds."""
        now = self._clock()
        if now - self._shown_alive < _SECONDS_BETWEEN_SIGNS:
            return
        self._shown_alive = now
        with self._lock:
            stores = [*self._held.values()]
        for held in stores:
            held.show_alive()

    def _let_go(self, fits: Callable[[], bool]) -> None:
        """Give up state of ended queries until `fits()` is True, the state unused for longest
        first. If two threads call this, the second thread waits, and then asks `fits` again."""
        with self._letting_go:
            for url, held in self._ended():
                if fits():
                    return
                if held.give_up_state():
                    _log.warning(
                        "spark.cowstate.maxMemoryMB is reached: the state of %s is let go of, "
                        "because its query seems to have ended. It is in the store, and is read "
                        "again if the query goes on",
                        url,
                    )

    def _ended(self) -> list[tuple[str, _HeldStore]]:
        """Return the URL and store of each ended query, the store unused for longest first."""
        with self._lock:
            now = self._clock()
            ended = [
                (url, held)
                for url, held in self._held.items()
                if held.run_id is not None and self._runs.has_ended(held.run_id, now)
            ]
        return sorted(ended, key=lambda store: store[1].last_used)

    def close(self) -> None:
        """Wait for snapshots and housekeeping under way, and remove local files."""
        self._maintenance.close()
        self.remove_local_files()

    def remove_local_files(self) -> None:
        """Remove this process's files from the local disk. No subtask may be used afterwards."""
        self._backends.close()


class _HeldStore:
    """An open store and its subtasks.

    `users`: number of requests in progress; `last_used`: end of the last request; `run_id`: the
    last run that used the store. Only `Sessions` uses these three attributes.
    """

    def __init__(self, maintenance: Maintenance, backends: SubtaskBackends) -> None:
        self.users = 0
        self.last_used = 0.0
        self.run_id: str | None = None
        self._backends = backends
        self._maintenance = maintenance
        self._lock = threading.Lock()
        self._store: StoreSession | None = None
        self._options: Mapping[str, Any] = {}
        self._subtasks: dict[tuple[int, int], SubtaskSession] = {}

    def subtask(self, request: EpochRequest) -> SubtaskSession:
        while True:
            store = self._opened(request)
            try:
                store.run(request.task)
            except StoreBegunAnewError:
                self._forget(store)
                continue
            store.check_metadata(request)
            with self._lock:
                if self._store is store:
                    store.run(request.task)  # a newer run may have come meanwhile
                    return self._kept(request, store)

    def show_alive(self) -> None:
        """Put signs of life for all subtasks, see Sessions.show_alive."""
        for subtask in [*self._subtasks.values()]:  # no lock: a store may take long to open
            subtask.show_alive()

    def give_up_state(self) -> bool:
        """Give up the state of unused subtasks. Return True if any subtask had state."""
        with self._lock:
            subtasks = [*self._subtasks.values()]
        given_up = [subtask.give_up_state() for subtask in subtasks]
        return any(given_up)

    def _opened(self, request: EpochRequest) -> StoreSession:
        options = request.spec.checkpoints.store_options
        with self._lock:
            if self._store is not None and self._options != options:
                self._store = None
                self._close_subtasks()
            if self._store is None:
                self._store, self._options = StoreSession(request, self._maintenance), options
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
        """Release the state of all subtasks."""
        with self._lock:
            self._close_subtasks()

    def _close_subtasks(self) -> None:
        for subtask in self._subtasks.values():
            subtask.close()
        self._subtasks.clear()
