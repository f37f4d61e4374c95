"""The executor that a state host belongs to, and the directories of its hosts.

    <temporary directory>/cowstate-<uid>/        owned by the user, no permission for others
        <executor>/                              its pid, start time and pid namespace
            lock                                 held by all who work here, see held_folder
            <slot>.lock                          held while a host is being started
            <slot>.sock                          the host listens here
            gateway-<pid>.sock                   the gateway of the state store provider does
    <local directory>/cowstate-<uid>/
        <executor>/
            lock                                 as above
            <host>/<number>/                     a database of a subtask
            copies/<owner>/                      tables that the store has, too: see local_copies

Containers may share directories and not their pids. So a directory of the own namespace stays while
its executor runs, and one of another namespace while somebody works in it.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from checkpoint_store.files.held_folder import held, remove_if_free
from spark_state.errors import StateHostError

_MAX_SOCKET_PATH_BYTES = 103 if sys.platform == "darwin" else 107  # sizeof sun_path - 1
_DIRECTORY = re.compile(r"(?P<pid>\d+)-(?P<started>[0-9a-f]+)-(?P<namespace>[0-9a-f]+)")


@dataclass(frozen=True, slots=True)
class Executor:
    """The process whose end ends its hosts; `started` (see _start_of) tells a reused pid apart."""

    pid: int
    started: int

    def is_running(self) -> bool:
        """False also for a zombie, which its parent has not waited for yet."""
        return running_executor(self.pid) == self

    @property
    def directory_name(self) -> str:
        """The name of two directories: that of its hosts' sockets, and that of their databases and
        of local copies of tables."""
        return f"{self.pid}-{self.started:x}-{_pid_namespace():x}"


def running_executor(pid: int) -> Executor | None:
    """The process of this pid, None if there is none or it is a zombie."""
    try:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return None
        return Executor(pid, _start_of(pid))
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return None


def _start_of(pid: int) -> int:
    """When a process started, in hundredths of a second of a clock that nobody sets.

    On Linux that is field 22 of /proc/<pid>/stat, the time since boot. Psutil's create_time adds
    the time of boot, which changes whenever the system's clock is set.
    """
    stat_file = Path(f"/proc/{pid}/stat")
    if sys.platform != "linux":
        return int(psutil.Process(pid).create_time() * 100)
    after_name = stat_file.read_text().rpartition(")")[2].split()
    return int(after_name[19])


def _pid_namespace() -> int:
    """The inode of this process' pid namespace; 0 on a system that has none."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except FileNotFoundError:
        return 0


def executor_of_worker() -> Executor:
    """The executor of this Python worker: its nearest ancestor that is no Python of Spark's.

    Spark starts a daemon as `python -m <daemon module> <worker module>`, and the daemon forks
    workers. The setting spark.python.daemon.module may name another module than Spark's.
    """
    process = psutil.Process()
    parent = process.parent()
    while parent is not None and _is_daemon(parent.cmdline()):
        process, parent = parent, parent.parent()
    if parent is None:
        raise StateHostError("this Python worker has no executor above it: it is being killed")
    return Executor(parent.pid, _start_of(parent.pid))


def _is_daemon(command: list[str]) -> bool:
    """Whether a command line is of a daemon of Spark's Python workers. A forked daemon may have
    more than one process with this command line above a worker."""
    return len(command) == 4 and command[1] == "-m" and command[3].startswith("pyspark.")


@contextmanager
def working_for(executor: Executor, root: Path | None = None) -> Iterator[Path]:
    """The private directory of an executor's hosts below `root`, by default the temporary
    directory. It is kept from other containers for the time of a `with`."""
    place = root or Path(tempfile.gettempdir())
    with held(lambda: private_directory(place, executor)) as directory:
        yield directory


def socket_directory(executor: Executor) -> Path:
    """The directory of the sockets of an executor's hosts. See private_directory."""
    return private_directory(Path(tempfile.gettempdir()), executor)


def socket_path(executor: Executor, name: str) -> Path:
    """Where a process of an executor listens. Raises StateHostError if the path is too long for the
    system, and what private_directory raises."""
    path = socket_directory(executor) / name
    length = len(os.fsencode(path))
    if length > _MAX_SOCKET_PATH_BYTES:
        raise StateHostError(
            f"the socket path {path} has {length} bytes, this system allows "
            f"{_MAX_SOCKET_PATH_BYTES}; set TMPDIR in the executors' environment "
            "(spark.executorEnv.TMPDIR) to a shorter directory"
        )
    return path


def private_directory(root: Path, executor: Executor) -> Path:
    """The private directory of an executor's hosts below `root`, created if need be.

    Raises StateHostError if other users may use the path.
    """
    parent = _parent(root)
    directory = parent / executor.directory_name
    for path in (parent, directory):
        path.mkdir(mode=0o700, exist_ok=True)
        _check_private(path)
    return directory


def _check_private(path: Path) -> None:
    """Raise StateHostError if another user owns a directory, or may do anything with it."""
    if not _is_private(path):
        status = path.lstat()
        raise StateHostError(
            f"{path} must be a directory of uid {os.getuid()} without permissions for others, and "
            f"it is {stat.filemode(status.st_mode)} of uid {status.st_uid}. Remove it. If its file "
            "system gives such permissions to all directories, use another one: for sockets set "
            "TMPDIR in the executors' environment (spark.executorEnv.TMPDIR), for databases "
            "spark.cowstate.rocksdb.localDirectory"
        )


def _is_private(path: Path) -> bool:
    """Whether a directory is there, and is the user's alone.

    The bits for set-group-ID and the like do not matter: a new directory inherits them. The rights
    that a default ACL names are masked by those of the group, which has none.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    shared = stat.S_IMODE(status.st_mode) & (stat.S_IRWXG | stat.S_IRWXO)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not shared


def remove_directories_of_gone_executors(root: Path | None = None) -> None:
    """Remove what hosts of executors that are gone left below `root`, by default the temporary
    directory."""
    parent = _parent(root or Path(tempfile.gettempdir()))
    for directory in parent.glob("*") if _is_private(parent) else ():
        match = _DIRECTORY.fullmatch(directory.name)
        if match is None:
            continue
        if int(match["namespace"], 16) != _pid_namespace():
            with suppress(OSError):  # somebody works there, or has just removed it
                remove_if_free(directory)
            continue
        running = running_executor(int(match["pid"]))
        if running is None or running.directory_name != directory.name:
            shutil.rmtree(directory, ignore_errors=True)  # another host may be doing the same


def _parent(root: Path) -> Path:
    return root / f"cowstate-{os.getuid()}"
