"""Drivers of `provider_application`: their input and output, and their child processes."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import psutil
import pyarrow.parquet as pq

from tests.support.applications.provider_application import STATE_STORE
from tests.support.applications.streams import Row, Totals, random_rows, write_rows

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


def feed_rows(folder: Path, epoch: int, rows: list[Row]) -> None:
    """Write the file of an epoch."""
    write_rows(folder / "input" / f"{epoch:05d}.parquet", rows)


def command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", MODULE, str(folder), *arguments]


def store_in(folder: Path) -> str:
    """The setting that keeps the state in a store in `folder`."""
    return f"{STORE}={(folder / 'store').as_uri()}"


def totals_in(folder: Path) -> Totals:
    """The newest totals of every key in the sink."""
    sums: Totals = {}
    epochs = sorted((folder / "output").iterdir(), key=lambda path: int(path.name[6:]))
    for path in epochs:
        for row in pq.read_table(path).to_pylist():
            sums[row["key"]] = (row["rows"], row["total"])
    return sums


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
