"""Makes the backends of a host's subtasks, with local directories for RocksDB.

RocksDB is imported at first use, because not every installation of cowstate has RocksDB.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkpoint_store.files.held_folder import held, remove_if_free
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.working_directory import remove_what_killed_processes_left
from spark_state.checkpointing.restore_plan import Handles
from spark_state.errors import StateHostError
from spark_state.executor import Executor, remove_directories_of_gone_executors, working_for
from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from spark_state.keyed_state.backend_restore import BackendRestore
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.keyed_state_backend import KeyedStateBackend
from spark_state.processor.rows import STATE_FORMS
from spark_state.subtasks.epoch_request import EpochRequest
from spark_state.subtasks.subtask_memory import HostMemory

if TYPE_CHECKING:
    from spark_state.rocksdb.database_options import DatabaseMemory
    from spark_state.rocksdb.local_copies import LocalCopies

Backend = KeyedStateBackend[Any]

_COPIES = "copies"


class SubtaskBackends:
    """Makes the backends of a process. Thread-safe.

    `executor`: the executor that the process belongs to, None if the process belongs to no
    executor; `memory`: memory counters of the subtasks; `clock` gives seconds.
    """

    def __init__(
        self,
        executor: Executor | None = None,
        memory: HostMemory | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.memory = memory or HostMemory()
        self._executor = executor
        self._clock = clock
        self._lock = threading.Lock()
        self._folders: dict[Path, Path] = {}
        self._held = ExitStack()
        self._of_executor: dict[Path, Path] = {}
        self._copies: dict[Path, _OwnCopies] = {}
        self._numbers = count()
        self._memory: DatabaseMemory | None = None

    def restored(
        self, request: EpochRequest, key_groups: KeyGroupRange, restore: BackendRestore
    ) -> tuple[Backend, Handles]:
        """Return a backend in which all states of `restore` are open, and the files that are still
        to be applied. Raises StateHostError if the backend cannot have its local directory, or if
        RocksDB is not installed."""
        key_columns = request.spec.processor.key_columns
        if request.spec.backend.kind == "heap":
            return restored_on_heap(key_groups, key_columns, restore)
        try:
            from spark_state.rocksdb.database_options import DatabaseMemory
            from spark_state.rocksdb.database_restore import restored_backend
            from spark_state.rocksdb.local_copies import DatabaseHome
        except ImportError as error:
            raise StateHostError(
                f"spark.cowstate.backend is 'rocksdb', and {sys.executable} on this executor does "
                f"not have {error.name}: pip install 'cowstate[rocksdb]'"
            ) from error
        with self._lock:
            folder = self._folder_below(local_root(request)) / str(next(self._numbers))
            # All databases of this process share the greatest limit of any operator.
            self._memory = self._memory or DatabaseMemory()
            self._memory.allow(request.spec.backend.memory_mb << 20)
            copies = self._own_copies(request, key_groups)
            home = DatabaseHome(folder, self._memory, copies, request.spec.backend.database)
        return restored_backend(key_groups, key_columns, STATE_FORMS, home, restore)

    def _own_copies(self, request: EpochRequest, key_groups: KeyGroupRange) -> LocalCopies | None:
        """Return the place for the copies of the subtask's files, which the executor's next host
        may use; None if no copies are kept."""
        from spark_state.rocksdb.local_copies import LocalCopies

        if self._executor is None or not request.spec.backend.local_recovery:
            return None
        folder = self._executor_folder(local_root(request), self._executor) / _COPIES
        owner = _owner(request.store_url, key_groups)
        if folder / owner not in self._copies:
            self._copies[folder / owner] = _OwnCopies(folder / owner)
        self._copies[folder / owner].released = None
        return LocalCopies(folder, owner)

    def release_copies(self, store_url: str, key_groups: KeyGroupRange) -> None:
        """Note the end of a subtask. Its copies stay for a while, see remove_unused_copies."""
        with self._lock:
            for folder, copies in self._copies.items():
                if folder.name == _owner(store_url, key_groups):
                    copies.released = self._clock()

    def remove_unused_copies(self, seconds: float) -> None:
        """Remove copies of subtasks that ended more than `seconds` ago. Also remove copies that a
        killed host has left, if the copies are older than `seconds`: by then, another host has
        taken over all useful copies."""
        with self._lock:
            for folder, copies in [*self._copies.items()]:
                if copies.released is not None and copies.released < self._clock() - seconds:
                    copies.remove()
                    del self._copies[folder]
            for directory in self._of_executor.values():
                for folder in (directory / _COPIES).glob("*"):
                    with suppress(OSError):  # another host uses or has removed the copies
                        if time.time() - folder.stat().st_mtime > seconds:
                            remove_if_free(folder)

    def _executor_folder(self, root: Path, executor: Executor) -> Path:
        """Return the executor's folder, protected from removal by other containers."""
        if root not in self._of_executor:
            folder = self._held.enter_context(working_for(executor, root))
            self._of_executor[root] = folder
        return self._of_executor[root]

    def _folder_below(self, root: Path) -> Path:
        """Return the folder of this process below `root`."""
        if root not in self._folders:
            try:
                self._folders[root] = self._new_folder(root)
            except OSError as error:
                raise StateHostError(
                    f"RocksDB cannot keep its files below {root}: {error}. Set "
                    "spark.cowstate.rocksdb.localDirectory to a directory that Spark's user may "
                    "write on all executors"
                ) from error
        return self._folders[root]

    def _new_folder(self, root: Path) -> Path:
        if self._executor is None:
            return Path(tempfile.mkdtemp(prefix="cowstate-", dir=root))
        remove_directories_of_gone_executors(root)
        remove_what_killed_processes_left()
        folder = self._executor_folder(root, self._executor) / str(os.getpid())
        # An earlier host may have had the same pid.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def close(self) -> None:
        """Remove the local directories and the copies. The backends may not be used afterwards. A
        killed host does not get here, so its copies stay for the executor's next host."""
        with self._lock:
            for folder in self._folders.values():
                shutil.rmtree(folder, ignore_errors=True)
            for copies in self._copies.values():
                copies.remove()
            self._held.close()
            for places in (self._folders, self._copies, self._of_executor):
                places.clear()


def restored_on_heap(
    key_groups: KeyGroupRange, key_columns: KeyColumns, restore: BackendRestore
) -> tuple[Backend, Handles]:
    """Return a backend on the heap in which all states of `restore` are open, and the files that
    are still to be applied. These are all files of `restore`, because the backend is empty."""
    backend = HeapKeyedStateBackend(key_groups, key_columns, STATE_FORMS)
    for state in restore.states:
        backend.open_table(state.descriptor)
    return backend, restore.handles


class _OwnCopies:
    """The folder of a subtask's copies, protected from removal by other hosts. `released`: time of
    the subtask's end, None while the subtask is in use."""

    def __init__(self, folder: Path) -> None:
        def made() -> Path:
            folder.mkdir(parents=True, exist_ok=True)
            return folder

        self.released: float | None = None
        self._folder = folder
        self.held = ExitStack()
        self.held.enter_context(held(made))

    def remove(self) -> None:
        self.held.close()
        with suppress(OSError):  # gone already
            remove_if_free(self._folder)


def _owner(store_url: str, key_groups: KeyGroupRange) -> str:
    store = hashlib.sha256(store_url.encode()).hexdigest()[:16]
    return f"{store}-{key_groups.start}-{key_groups.end}"


def local_root(request: EpochRequest) -> Path:
    """Return the local directory below which the subtask keeps files: the configured directory, or
    one of Spark's local directories, or the temporary directory."""
    configured, of_spark = request.spec.backend.local_directory, request.local_directories
    if configured is not None:
        return Path(configured)
    if of_spark:
        return Path(of_spark[request.task.subtask % len(of_spark)])
    return Path(tempfile.gettempdir())
