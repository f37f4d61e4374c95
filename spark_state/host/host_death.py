"""How a state host died, as far as Linux tells.

    exit status    /proc/<pid>/stat of the dead process, until its parent has waited for it. The
                   worker that started it never does, so it is there as long as that worker is.
    oom_kill       of the control group of worker and host: how many of its processes the kernel
                   has killed for memory

Other systems tell nothing of this.
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
# What of /proc/<pid>/stat comes after the name: the state, and much later the exit status.
_STATE, _EXIT_STATUS = 0, 49
_SIGNAL_BITS = 0x7F
HUNG_EXIT_CODE = 75
"""The exit code of a host in which a subtask does not return."""
LAST_WORDS_SIGNAL = signal.SIGUSR1
"""Lets a host say where each of its threads is, and then ends it."""
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """What a host held when it took a request. `process_bytes`: the memory of the whole process;
    `state_bytes`: its state, as far as operators have limits."""

    process_bytes: int
    state_bytes: int

    def __str__(self) -> str:
        state = f", {_mib(self.state_bytes)} of it state" if self.state_bytes else ""
        return f"{_mib(self.process_bytes)}{state}"


@dataclass(frozen=True, slots=True)
class HostDeath:
    """`status`: as of os.waitpid, None if nobody knows; `oom_kills`: what the kernel counted of
    processes killed for memory, before the epoch and after the death, None if it does not count."""

    status: int | None
    oom_kills: tuple[int, int] | None

    @property
    def was_killed(self) -> bool:
        """Whether it got SIGKILL, which nobody of cowstate sends to a host that answers."""
        return self._number == signal.SIGKILL

    @property
    def _number(self) -> int:
        """The signal that ended it, 0 for none."""
        return 0 if self.status is None else self.status & _SIGNAL_BITS

    @property
    def was_for_memory(self) -> bool:
        """Whether the kernel killed it for memory, or what else runs in its control group."""
        if self.oom_kills is None or not (self.was_killed or self.status is None):
            return False
        return self.oom_kills[1] > self.oom_kills[0]

    def how(self) -> str:
        """In a few words."""
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

    def advice(self, max_memory_mb: int | None, held: HeldMemory | None) -> str:
        """What may have been the reason, and what to do; nothing if that is not known."""
        if self._number == signal.SIGBUS:
            return (
                " The local disk may not have given back what was spilled to it: look for read "
                "errors of the disk in the kernel's log"
            )
        if not (self.was_killed or self.was_for_memory):
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
        last = "" if held is None else f" When the epoch began, it held {held}."
        return (
            f" {reason}.{last} If memory is short, give the executor more "
            "(spark.executor.memoryOverhead, the container's limit), or let its hosts use less: "
            f"spark.cowstate.maxMemoryMB of each host is {limit}"
        )


@dataclass(frozen=True, slots=True)
class WatchedHost:
    """The host at the other end of a connection. `pid`: None if the system does not say."""

    pid: int | None
    oom_kills: int | None

    @classmethod
    def at(cls, connection: socket.socket) -> WatchedHost:
        """Call it before the host works."""
        return cls(_peer(connection), oom_kills())

    def end(self, connection: socket.socket) -> bool:
        """End a host that does not answer, and wait for its end; whether it is known which process
        it is. While the connection is open the host lives, and its number is no other process'."""
        if not self.pid:
            return False
        for number in (LAST_WORDS_SIGNAL, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)
            if _is_closed(connection):
                break
        return True

    def death(self) -> HostDeath:
        """How it died. It is gone, or about to be."""
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
    """Whether the other end is closed, or will be within a few seconds. A process is the last one
    to know of its own end: the status of its first thread may be there while others still run."""
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
    """The status of a process that is dead, or dies within a moment: its socket is closed first.
    None if its parent has waited for it already, or it lives."""
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
    """How many processes of this one's control group the kernel has killed for memory."""
    path = _own_counter()
    return None if path is None else counted_in(path)


def counted_in(path: Path) -> int | None:
    """What a file of a control group says of it; None if it says nothing."""
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
    """Where it may be counted, by the content of /proc/self/cgroup: by version 2 of control groups,
    or by version 1. A container may see its own group as the root."""
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


def _mib(size: int) -> str:
    return f"{size / _MIB:.0f} MiB"
