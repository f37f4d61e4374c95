"""CPU seconds and memory of a process and all processes below it. Imports no engine.

An engine's workers may outlive their parents, and a process that has ended shows its CPU seconds
to its parent alone. So this process adopts the orphans, and counts what ended children have used.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress

import psutil

PR_SET_CHILD_SUBREAPER = 36
SAMPLE_SECONDS = 1.0


def adopt_orphans() -> None:
    """Make this process the parent of processes below it whose parents end. Linux only."""
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError("the system does not let this process adopt orphans")


def kill_processes_below() -> None:
    """Kill all processes below this one."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            process.kill()


def cpu_seconds() -> float:
    """The CPU seconds of this process and of the processes below, ended ones included."""
    return _sum_of_all(_cpu_seconds)


class PeakMemory(threading.Thread):
    """Thread that samples the resident memory of this process and of the processes below, and keeps
    the greatest sum. Memory that processes share counts once for each of them."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._is_over = threading.Event()
        self._peak = 0.0

    def run(self) -> None:
        while not self._is_over.wait(SAMPLE_SECONDS):
            self._peak = max(self._peak, _sum_of_all(_resident_bytes))

    def stop(self) -> float:
        """End the thread. Returns the peak in megabytes."""
        self._is_over.set()
        self.join()
        return max(self._peak, _sum_of_all(_resident_bytes)) / 2**20


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system + times.children_user + times.children_system


def _resident_bytes(process: psutil.Process) -> int:
    return process.memory_info().rss


def _sum_of_all(figure: Callable[[psutil.Process], float]) -> float:
    """The sum over this process and the processes below. A process that ends meanwhile counts 0."""
    this, total = psutil.Process(), 0.0
    for process in (this, *this.children(recursive=True)):
        with suppress(psutil.Error):
            total += figure(process)
    return total
