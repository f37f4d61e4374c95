"""The operating-system resources of a test run, and the leftovers after the run."""

from __future__ import annotations

import tempfile
import threading
import time
from dataclasses import dataclass

import psutil

# fsspec's event loop thread serves all asynchronous filesystems and lives as long as the process.
# The loop's own threads (asyncio_0 and so on) run blocking calls of clients and live as long.
# The threads for requests to stores stay for later requests.
# xdist's threads belong to the test runner.
LASTING_THREADS = ("fsspecIO", "asyncio_", "cowstate-requests", "execnet", "pytest_timeout")
# matplotlib keeps used font files open.
LASTING_FILES = "mpl-data"
HOST_MODULE = "spark_state.host"


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Names of the resources in use; an empty set means none."""

    threads: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    sockets: frozenset[str] = frozenset()
    processes: frozenset[str] = frozenset()

    def __sub__(self, earlier: Leftovers) -> Leftovers:
        return Leftovers(
            self.threads - earlier.threads,
            self.files - earlier.files,
            self.sockets - earlier.sockets,
            self.processes - earlier.processes,
        )


def _threads() -> frozenset[str]:
    return frozenset(
        f"{thread.name} ({thread.ident})"
        for thread in threading.enumerate()
        if thread is not threading.main_thread() and not thread.name.startswith(LASTING_THREADS)
    )


def _files(process: psutil.Process) -> frozenset[str]:
    return frozenset(
        f"{file.path} (fd {file.fd})"
        for file in process.open_files()
        if LASTING_FILES not in file.path
    )


def _sockets(process: psutil.Process) -> frozenset[str]:
    return frozenset(
        f"{connection.laddr} -> {connection.raddr} {connection.status} (fd {connection.fd})"
        for connection in process.net_connections(kind="all")
        if connection.laddr or connection.raddr
    )


def _described(process: psutil.Process) -> str:
    try:
        return f"{process.pid}: {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return f"{process.pid}: (gone)"


def _is_our_host(process: psutil.Process) -> bool:
    """True for a state host whose socket lies in this run's temporary folder.

    A host leaves the process tree of its starter, so a search among child processes does not find
    hosts.
    """
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    scratch = tempfile.gettempdir()
    return any(HOST_MODULE in word for word in words) and any(
        word.startswith(scratch) for word in words
    )


def _processes(process: psutil.Process) -> frozenset[str]:
    children = process.children(recursive=True)
    hosts = [candidate for candidate in psutil.process_iter() if _is_our_host(candidate)]
    running = {candidate.pid: candidate for candidate in [*children, *hosts]}.values()
    return frozenset(
        _described(candidate)
        for candidate in running
        if candidate.is_running() and candidate.status() != psutil.STATUS_ZOMBIE
    )


def in_use() -> Leftovers:
    """The resources that this process and its descendants use now."""
    process = psutil.Process()
    return Leftovers(_threads(), _files(process), _sockets(process), _processes(process))


def await_leftovers(earlier: Leftovers, patience_seconds: float) -> Leftovers:
    """Wait until nothing beyond `earlier` is in use, or patience ends. Returns the leftovers."""
    deadline = time.monotonic() + patience_seconds
    while (left := in_use() - earlier) != Leftovers() and time.monotonic() < deadline:
        time.sleep(0.2)
    return left
