"""A process that stands for an executor in the eyes of a state host, and the hosts of executors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from spark_state.executor import Executor, HostSettings, running_executor

ONE_HOST = HostSettings(per_executor=1, idle_seconds=600)


@contextmanager
def stand_in_executor() -> Iterator[Executor]:
    """Start a process in place of an executor's JVM. The process ends with the `with` block."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        running = running_executor(process.pid)
        assert running is not None
        yield running
    finally:
        process.kill()
        process.wait()


def state_hosts(*executors: int) -> list[psutil.Process]:
    """The running state hosts of these processes. A host is no child process of its executor."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if "spark_state.host.server" in (words := process.info["cmdline"] or [])
        and int(words[words.index("--executor") + 1]) in executors
    ]
