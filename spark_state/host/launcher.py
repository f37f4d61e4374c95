"""Finds the state host of a slot, and starts a host if the slot has no host.

A host belongs to the executor: the JVM above the Python worker. The first task that needs a host
starts the host in a session of its own. The host gets the worker's environment without the
variables that Spark set, above all the worker's secret. The host ends when the executor is gone.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path

from spark_state.errors import StateHostError
from spark_state.executor import (
    Executor,
    remove_directories_of_gone_executors,
    socket_path,
    working_for,
)

_PREFIXES_OF_SPARK = ("SPARK_", "PYSPARK_", "_PYSPARK", "PYTHON_")
_SET_BY_SPARK = ("PYTHONHASHSEED",)
_START_SECONDS = 60
_NOT_RUNNING = (FileNotFoundError, ConnectionRefusedError)


def connect(executor: Executor, slot: int, idle_seconds: int) -> socket.socket:
    """Connect to the host of a slot; start a host if the slot has no host.

    `idle_seconds`: time that a new host stays without work. Raises StateHostError.
    """
    path = socket_path(executor, f"{slot}.sock")
    try:
        return _connect(path)
    except _NOT_RUNNING:
        pass
    with working_for(executor), _locked(path.with_suffix(".lock")):
        try:
            return _connect(path)
        except _NOT_RUNNING:
            path.unlink(missing_ok=True)
        remove_directories_of_gone_executors()
        _start(executor, path, idle_seconds)
        return _connect(path)


def _connect(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(path))
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `environment` that belong to the user and not to Spark."""
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith(_PREFIXES_OF_SPARK) and name not in _SET_BY_SPARK
    }
    kept["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    kept["PYTHONUNBUFFERED"] = "1"
    return kept


def _start(executor: Executor, path: Path, idle_seconds: int) -> None:
    """Start a host and wait until the host listens. The host's output goes to the worker's standard
    error."""
    ready, report = os.pipe()
    command = [sys.executable, "-m", "spark_state.host.server"]
    arguments = {
        "--socket": path,
        "--executor": executor.pid,
        "--executor-started": executor.started,
        "--idle-seconds": idle_seconds,
        "--ready-descriptor": report,
    }
    try:
        process = subprocess.Popen(
            [*command, *(f"{word}" for pair in arguments.items() for word in pair)],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            stderr=sys.stderr.fileno(),
            env=clean_environment(os.environ),
            pass_fds=(report,),
            start_new_session=True,
        )
    finally:
        os.close(report)
    with os.fdopen(ready, "rb") as pipe:
        _wait_until_ready(process, pipe.fileno())
    process.returncode = 0  # the host outlives this worker on purpose: nobody waits for its end


def _wait_until_ready(process: subprocess.Popen[bytes], ready: int) -> None:
    readable = wait([ready], _START_SECONDS)
    if readable and os.read(ready, 1) == b"R":
        return
    if not readable:
        process.kill()
        process.wait()
        raise StateHostError(f"the state host did not start within {_START_SECONDS} s")
    code = process.wait()
    raise StateHostError(
        f"the state host ended with exit code {code} while starting; its error is in the "
        "executor's log. Code -9: the operating system may have killed it for memory"
    )
