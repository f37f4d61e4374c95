"""Drivers of `provider_application`: their input and output, and their child processes."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import psutil

from tests.support.applications.provider_application import STATE_STORE
from tests.support.applications.streams import Row, feed_rows, random_rows

BACKEND = f"{STATE_STORE}.cowstate.backend"
LOCAL_DIRECTORY = f"{STATE_STORE}.cowstate.localDirectory"
STORE = f"{STATE_STORE}.cowstate.store"
MODULE = "tests.support.applications.provider_application"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


def feed(folder: Path, epochs: int, first: int = 0) -> list[Row]:
    """Write the files of `epochs` epochs, from epoch `first` on. Returns the rows of the files."""
    fed: list[Row] = []
    for number in range(first, first + epochs):
        rows = random_rows(number, count=200, keys=80)
        feed_rows(folder, number, rows)
        fed += rows
    return fed


def command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", MODULE, str(folder), *arguments]


def store_in(folder: Path) -> str:
    """The setting that keeps the state in a store in `folder`."""
    return f"{STORE}={(folder / 'store').as_uri()}"


def epochs_in(folder: Path) -> int:
    return len(list((folder / "output").glob("epoch=*"))) if (folder / "output").exists() else 0


def family(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return [process, *process.children(recursive=True)]
    return []


def is_executor(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return EXECUTOR in process.cmdline()
    return False


def has_ended(process: psutil.Process) -> bool:
    """True if the process has ended. An orphan may stay a zombie without a waiting parent."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    return True


def kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
