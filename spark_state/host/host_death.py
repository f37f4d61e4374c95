"""Finds out from Linux how a state host died.

    exit status    from /proc/<pid>/stat, which exists after the death until the parent process
                   waits for the host or ends. The parent is the worker that started the host, or
                   the host from which this host was forked; neither waits.
    oom_kill       counter of the control group that worker and host share: number of the group's
                   processes that the kernel has killed for memory

Systems other than Linux have neither.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_CREDENTIALS = struct.Struct("3i")
_PATIENCE_SECONDS = 0.5
_LAST_WORDS_SECONDS = 10.0
_POLL_SECONDS = 0.02
# Positions in /proc/<pid>/stat, counted after the process name.
_STATE, _EXIT_STATUS = 0, 49
_SIGNAL_BITS = 0x7F
HUNG_EXIT_CODE = 75
"""Exit code of a host that ends because a subtask does not return."""
LAST_WORDS_SIGNAL = signal.SIGUSR1
"""Signal to a host to print the position of each thread, and then end."""


@dataclass(frozen=True, slots=True)
class HostDeath:
    """The end of a host.

    `status`: exit status as from os.waitpid, None if unknown; `oom_kills`: the counter `oom_kill`
    before the epoch and after the death, None if the system has no such counter.
    """

    status: int | None
    oom_kills: tuple[int, int] | None

    @property
    def _number(self) -> int:
        """The signal that ended the host, 0 for none."""
        return 0 if self.status is None else self.status & _SIGNAL_BITS

    @property
    def was_for_memory(self) -> bool:
        """True if the kernel killed a process of the host's control group for memory, probably the
        host."""
        may_be_killed = self.status is None or self._number == signal.SIGKILL
        return (
            self.oom_kills is not None and may_be_killed and self.oom_kills[1] > self.oom_kills[0]
        )

    def how(self) -> str:
        """Describe the death in a few words."""
        if self.was_for_memory:
            return "killed by the operating system for memory"
        if self.status is None:
            return "nobody knows how"
        if self._number == LAST_WORDS_SIGNAL:
            return "ended, because it did not answer a task"
        if self._number:
            return f"ended by {signal.Signals(self._number).name}"
        if self.status >> 8 == HUNG_EXIT_CODE:
            return "it ended itself, because one of its subtasks did not return"
        return f"ended with exit code {self.status >> 8}"

    def advice(self, max_memory_mb: int | None) -> str:
        """Return the likely reason and advice for the user; "" if the reason is unknown or needs no
        advice. `max_memory_mb`: the host's memory limit, None for no limit."""
        if self._number == signal.SIGBUS:
            return (
                " The local disk may not have given back what was spilled to it: look for read "
                "errors of the disk in the kernel's log"
            )
        # No part of cowstate sends SIGKILL to a host that answers.
        if not (self.was_for_memory or self._number == signal.SIGKILL):
            return ""
        reason = "The operating system may have killed it for memory"
        if self.was_for_memory:
            before, after = self.oom_kills or (0, 0)
            reason = f"oom_kill of its control group rose from {before} to {after}"
        elif self.oom_kills is not None:
            reason = (
                "The kernel has not killed it for memory, as oom_kill of its control group says; "
                "a daemon that watches memory may have, or a person"
            )
        limit = "not set" if max_memory_mb is None else f"{max_memory_mb}"
        return (
            f" {reason}. If memory is short, give the executor more "
            "(spark.executor.memoryOverhead, the container's limit), or let its hosts use less: "
            f"spark.cowstate.maxMemoryMB of each host is {limit}"
        )


@dataclass(frozen=True, slots=True)
class WatchedHost:
    """The host at the other end of a connection. `pid`: None if the system does not tell the pid.
    `oom_kills`: the counter `oom_kill` before the host began to work, None if unknown."""

    pid: int | None
    oom_kills: int | None

    @classmethod
    def at(cls, connection: socket.socket) -> WatchedHost:
        """Identify the host at `connection`. Call this before the host begins to work."""
        return cls(_peer(connection), oom_kills())

    def end(self, connection: socket.socket) -> bool:
        """End a silent host and wait for the end. Return False if the pid is unknown. While the
        connection is open, the host lives, so no other process can have its pid."""
        if not self.pid:
            return False
        for number in (LAST_WORDS_SIGNAL, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)
            if _is_closed(connection):
                # Until the process is dead, its socket may still take connections.
                _exit_status(self.pid)
                break
        return True

    def death(self) -> HostDeath:
        """Describe how the host died. The host is dead, or about to die."""
        after = oom_kills()
        counted = None if self.oom_kills is None or after is None else (self.oom_kills, after)
        return HostDeath(None if self.pid is None else _exit_status(self.pid), counted)


def _peer(connection: socket.socket) -> int | None:
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(data)[0]
    return pid


def _is_closed(connection: socket.socket) -> bool:
    """Return True if the other end is closed, or closes within a few seconds. An exit status in
    /proc does not prove that the process has ended: /proc shows the status when the first thread
    ends, and other threads may still run."""
    connection.settimeout(_LAST_WORDS_SECONDS)
    try:
        while connection.recv(4096):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def _exit_status(pid: int) -> int | None:
    """Return the exit status of a process that is dead or dies within half a second: the kernel
    closes a process's socket before the process is dead. None if the process lives, or if nothing
    in /proc tells the status any more."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        if fields[_STATE] in "ZX":
            return int(fields[_EXIT_STATUS])
        time.sleep(_POLL_SECONDS)
    return None


def oom_kills() -> int | None:
    """Return the counter `oom_kill` of this process's control group, see the module; None if the
    system has no such counter."""
    path = _own_counter()
    return None if path is None else counted_in(path)


def counted_in(path: Path) -> int | None:
    """Read the counter `oom_kill` from a file of a control group; None if the file has no such
    counter."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    counts = dict(line.split(" ", 1) for line in lines)
    return int(counts["oom_kill"]) if "oom_kill" in counts else None


@lru_cache(maxsize=1)
def _own_counter() -> Path | None:
    try:
        groups = Path("/proc/self/cgroup").read_text()
    except OSError:
        return None
    places = counters(groups, Path("/sys/fs/cgroup"))
    return next((path for path in places if counted_in(path) is not None), None)


def counters(groups: str, mounted_at: Path) -> Iterator[Path]:
    """Yield files that may have the counter `oom_kill`, in versions 1 and 2 of control groups.
    `groups`: content of /proc/self/cgroup. A container may see its own group as the root, so each
    file is also tried at the root."""
    for line in groups.splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            root, name = mounted_at, "memory.events"
        elif "memory" in controllers.split(","):
            root, name = mounted_at / "memory", "memory.oom_control"
        else:
            continue
        yield root / group.lstrip("/") / name
        yield root / name
