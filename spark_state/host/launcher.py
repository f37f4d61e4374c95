"""Finds the state host of a subtask, and starts the executor's hosts if the subtask has no host.

A host belongs to the executor, the JVM that started the Python worker. An executor has
`HostSettings.per_executor` slots, numbered from 0, with one host each. The first task that needs a
host starts the hosts of all slots: one process imports the engine and forks the other hosts, so the
imports cost CPU time once. Each host is in a Unix session of its own. A host gets the worker's
environment without the variables that Spark set, such as the worker's secret. A host ends when the
executor is gone.

`python -m spark_state.host.launcher <pid of the executor> <hosts> <idle seconds>` starts the hosts
before the first task.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from spark_state.errors import StateHostError
from spark_state.executor import (
    Executor,
    HostSettings,
    remove_directories_of_gone_executors,
    running_executor,
    socket_path,
    working_for,
)

_PREFIXES_OF_SPARK = ("SPARK_", "PYSPARK_", "_PYSPARK", "PYTHON_")
_SET_BY_SPARK = ("PYTHONHASHSEED",)
_START_SECONDS = 60
_END_SECONDS = 5
_NOT_RUNNING = (FileNotFoundError, ConnectionRefusedError)
# On macOS, libraries of the system end a forked process that uses them.
_CAN_FORK = sys.platform != "darwin"


def connect(executor: Executor, subtask: int, hosts: HostSettings) -> socket.socket:
    """Connect to the host of a subtask. If this host does not run, start it, and all other hosts of
    the executor that do not run. Raises StateHostError."""
    slot = subtask % hosts.per_executor
    path = _socket(executor, slot)
    try:
        return _connect(path)
    except _NOT_RUNNING:
        pass
    with working_for(executor) as directory, _locked(directory / "hosts.lock"):
        try:
            return _connect(path)
        except _NOT_RUNNING:
            pass
        remove_directories_of_gone_executors()
        # The first slot is the slot of this task: the worker can read the exit code only of the
        # process that it started.
        others = range(hosts.per_executor) if _CAN_FORK else ()
        slots = [slot, *(other for other in others if other != slot)]
        missing = [each for each in slots if not _is_served(_socket(executor, each))]
        for each in missing:
            _socket(executor, each).unlink(missing_ok=True)  # of a host that died
        _start(executor, directory, missing, hosts.idle_seconds)
        return _connect(path)


def _socket(executor: Executor, slot: int) -> Path:
    return socket_path(executor, f"{slot}.sock")


def _is_served(path: Path) -> bool:
    """Return True if a host listens at a path."""
    try:
        _connect(path).close()
    except _NOT_RUNNING:
        return False
    return True


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
    """Return the environment for a host: `environment` without Spark's variables, with this
    process's `sys.path` as PYTHONPATH."""
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith(_PREFIXES_OF_SPARK) and name not in _SET_BY_SPARK
    }
    kept["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    kept["PYTHONUNBUFFERED"] = "1"
    return kept


def _start(executor: Executor, directory: Path, slots: Sequence[int], idle_seconds: int) -> None:
    """Start the hosts of `slots`, and wait until the hosts listen. The output of the hosts goes to
    the standard error of this process."""
    ready, report = os.pipe()
    command = [sys.executable, "-m", "spark_state.host.server"]
    arguments = {
        "--directory": directory,
        "--executor": executor.pid,
        "--executor-started": executor.started,
        "--idle-seconds": idle_seconds,
        "--ready-descriptor": report,
        "--slots": ",".join(map(str, slots)),
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
        _wait_until_ready(process, pipe.fileno(), len(slots))
    process.returncode = 0  # the host outlives this worker on purpose: nobody waits for its end


def _wait_until_ready(process: subprocess.Popen[bytes], ready: int, hosts: int) -> None:
    """Wait until each of `hosts` hosts has written a byte to the pipe `ready`. `process`: the first
    host, which forks the other hosts."""
    readiness = select.poll()
    readiness.register(ready, select.POLLIN)
    deadline = time.monotonic() + _START_SECONDS
    while hosts:
        if not readiness.poll(1000 * max(0.0, deadline - time.monotonic())):
            process.kill()
            process.wait()
            raise StateHostError(f"the state host did not start within {_START_SECONDS} s")
        told = len(os.read(ready, hosts))
        if not told:
            raise StateHostError(
                f"{_end_of(process)} while starting; its error is in the executor's log. "
                "Code -9: the operating system may have killed it for memory"
            )
        hosts -= told


def _end_of(process: subprocess.Popen[bytes]) -> str:
    """Say which host ended: the first host, or one of the hosts that it forked."""
    try:
        return f"the state host ended with exit code {process.wait(_END_SECONDS)}"
    except subprocess.TimeoutExpired:
        return f"a state host that process {process.pid} forked ended"


def main(pid: int, per_executor: int, idle_seconds: int) -> None:
    """Start the hosts of the executor with this pid. Prints nothing if the hosts cannot start: the
    first task tries again, and raises the error."""
    executor = running_executor(pid)
    if executor is not None:
        with suppress(StateHostError):
            connect(executor, 0, HostSettings(per_executor, idle_seconds)).close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
