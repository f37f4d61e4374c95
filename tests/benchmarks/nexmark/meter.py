"""CPU seconds and memory of a process and all processes below it. Imports no engine.

An engine's workers may outlive their parents, and a process that has ended shows its CPU seconds
to its parent alone. So this process adopts the orphans, and counts what ended children have used.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator

import psutil

PR_SET_CHILD_SUBREAPER = 36
SAMPLE_SECONDS = 1.0


def adopt_orphans() -> None:
    """Make this process the parent of processes below it whose parents end. Linux only."""
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError("the system does not let this process adopt orphans")


def cpu_seconds() -> float:
    """The CPU seconds of this process and of the processes below, ended ones included."""
    times = [process.cpu_times() for process in _all_processes()]
    return sum(t.user + t.system + t.children_user + t.children_system for t in times)


class PeakMemory(threading.Thread):
    """Thread that samples the resident memory of this process and of the processes below, and keeps
    the greatest sum. Memory that processes share counts once for each of them."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._is_over = threading.Event()
        self._peak = 0

    def run(self) -> None:
        while not self._is_over.wait(SAMPLE_SECONDS):
            self._peak = max(self._peak, _resident_bytes())

    def stop(self) -> float:
        """End the thread. Returns the peak in megabytes."""
        self._is_over.set()
        self.join()
        return max(self._peak, _resident_bytes()) / 2**20


def _resident_bytes() -> int:
    return sum(process.memory_info().rss for process in _all_processes())


def _all_processes() -> Iterator[psutil.Process]:
    """This process and the processes below that still exist."""
    this = psutil.Process()
    for process in (this, *this.children(recursive=True)):
        try:
            process.cpu_times()
        except psutil.Error:
            continue
        yield process
