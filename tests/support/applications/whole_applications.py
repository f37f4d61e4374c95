"""Applications in processes of their own. Tests kill an application with all its processes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import psutil

from tests.support.operators.executors import state_hosts

ROOT = Path(__file__).resolve().parents[3]


def start(module: str, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
    """Start `python -m module arguments…`. The output to stderr is appended to `log`."""
    with log.open("ab") as errors:
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=errors)


def kill(driver: subprocess.Popen[bytes]) -> int:
    """Kill a driver, its JVM, its Python processes and its state hosts, which are no child
    processes of the driver. Returns the driver's exit code, 0 if the driver had ended before."""
    processes: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(driver.pid)
        processes = [process, *process.children(recursive=True)]
    for process in [*processes, *state_hosts(*(process.pid for process in processes))]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return driver.wait()
