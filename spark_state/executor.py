"""The executor of a state host, and the directories of the executor's hosts.

    <temporary directory>/cowstate-<uid>/        owned by the user, no permission for others
        <executor>/                              named by pid, start time and pid namespace
            lock                                 held by processes at work here, see held_folder
            hosts.lock                           held while hosts are being started
            <slot>.sock                          socket of the state host
            gateway-<pid>.sock                   socket of the state store provider's gateway
    <local directory>/cowstate-<uid>/
        <executor>/
            lock                                 as above
            <host>/<number>/                     a database of a subtask
            copies/<owner>/                      copies of tables in the store: see local_copies

Containers may share directories but not pids. So a directory of this process's pid namespace is
kept while its executor runs; a directory of another namespace is kept while a process holds the
directory's lock.
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
class HostSettings:
    """Settings for the hosts of an executor. `per_executor`: number of host processes of an
    executor; `idle_seconds`: a host ends after so many seconds without work; `max_memory_mb`:
    memory limit of a host for all its subtasks, in MiB, None for no limit, see subtask_memory."""

    per_executor: int
    idle_seconds: int = 600
    max_memory_mb: int | None = None


@dataclass(frozen=True, slots=True)
class Executor:
    """The executor's process, to which hosts belong: hosts end when the process ends. `started`:
    start time of the process (see _start_of). A later process with the same pid has another start
    time."""

    pid: int
    started: int

    def is_running(self) -> bool:
        """Return True if the process runs. A zombie does not count as running."""
        return running_executor(self.pid) == self

    @property
    def directory_name(self) -> str:
        """The name of two directories: for the hosts' sockets, and for databases and copies of
        tables."""
        return f"{self.pid}-{self.started:x}-{_pid_namespace():x}"


def running_executor(pid: int) -> Executor | None:
    """Return the process with this pid; None if no such process exists or the process is a
    zombie."""
    try:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return None
        return Executor(pid, _start_of(pid))
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return None


def _start_of(pid: int) -> int:
    """Return the start time of a process, in hundredths of a second. On Linux: the time since boot,
    field 22 of /proc/<pid>/stat. On other systems: psutil's create_time. On Linux create_time is
    unsuitable, because it changes whenever the system's clock is set."""
    stat_file = Path(f"/proc/{pid}/stat")
    if sys.platform != "linux":
        return int(psutil.Process(pid).create_time() * 100)
    after_name = stat_file.read_text().rpartition(")")[2].split()
    return int(after_name[19])


def _pid_namespace() -> int:
    """Return the inode of this process's pid namespace; 0 on a system without namespaces."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except FileNotFoundError:
        return 0


def executor_of_worker() -> Executor:
    """Return the executor of this Python worker: the nearest ancestor outside Spark's own Python
    processes.

    Spark starts a daemon as `python -m <daemon module> <worker module>`, and the daemon forks
    workers. The setting spark.python.daemon.module may name another module than Spark's. Raises
    StateHostError if the worker has no such ancestor.
    """
    process = psutil.Process()
    parent = process.parent()
    while parent is not None and _is_daemon(parent.cmdline()):
        process, parent = parent, parent.parent()
    if parent is None:
        raise StateHostError("this Python worker has no executor above it: it is being killed")
    return Executor(parent.pid, _start_of(parent.pid))


def _is_daemon(command: list[str]) -> bool:
    """Return True for the command line of a daemon of Spark's Python workers. Above a worker there
    may be several processes with this command line, because a daemon may fork."""
    return len(command) == 4 and command[1] == "-m" and command[3].startswith("pyspark.")


@contextmanager
def working_for(executor: Executor, root: Path | None = None) -> Iterator[Path]:
    """Yield the private directory of an executor's hosts below `root` (default: the temporary
    directory). During the `with` block other containers do not remove the directory."""
    place = root or Path(tempfile.gettempdir())
    with held(lambda: private_directory(place, executor)) as directory:
        yield directory


def socket_directory(executor: Executor) -> Path:
    """Return the directory for the sockets of an executor's hosts. Raises the errors of
    private_directory."""
    return private_directory(Path(tempfile.gettempdir()), executor)


def socket_path(executor: Executor, name: str) -> Path:
    """Return the path of a socket of an executor's process. Raises StateHostError if the path is
    too long for the system, and the errors of private_directory."""
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
    """Return the private directory of an executor's hosts below `root`; create a missing directory.
    Raises StateHostError if other users may use the path."""
    parent = _parent(root)
    directory = parent / executor.directory_name
    for path in (parent, directory):
        path.mkdir(mode=0o700, exist_ok=True)
        if not _is_private(path):
            status = path.lstat()
            raise StateHostError(
                f"{path} must be a directory of uid {os.getuid()} without permissions for others, "
                f"and it is {stat.filemode(status.st_mode)} of uid {status.st_uid}. Remove it, or "
                "use another file system: for sockets set TMPDIR in the executors' environment "
                "(spark.executorEnv.TMPDIR), for databases spark.cowstate.rocksdb.localDirectory"
            )
    return directory


def _is_private(path: Path) -> bool:
    """Return True if a directory exists and only this user may use it. Bits such as set-group-ID do
    not matter: a new directory inherits such bits. An ACL may give rights to more users, but the
    group's rights limit these rights, and the group has no rights."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    shared = stat.S_IMODE(status.st_mode) & (stat.S_IRWXG | stat.S_IRWXO)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not shared


def remove_directories_of_gone_executors(root: Path | None = None) -> None:
    """Remove the directories of dead executors below `root` (default: the temporary directory)."""
    parent = _parent(root or Path(tempfile.gettempdir()))
    for directory in parent.glob("*") if _is_private(parent) else ():
        match = _DIRECTORY.fullmatch(directory.name)
        if match is None:
            continue
        if int(match["namespace"], 16) != _pid_namespace():
            with suppress(OSError):  # a process works there, or has just removed the directory
                remove_if_free(directory)
            continue
        running = running_executor(int(match["pid"]))
        if running is None or running.directory_name != directory.name:
            shutil.rmtree(directory, ignore_errors=True)  # another host may do the same


def _parent(root: Path) -> Path:
    return root / f"cowstate-{os.getuid()}"
