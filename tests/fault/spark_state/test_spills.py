"""No input is lost if a host is killed, or its disk is full, while the input of an epoch is
spilled."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from spark_state.errors import StateHostError
from spark_state.executor import Executor
from spark_state.host import wire
from spark_state.host.client import run_epoch
from spark_state.host.launcher import connect
from spark_state.subtasks.epoch_request import BackendSettings
from tests.support.operators.executors import ONE_HOST, state_hosts
from tests.support.operators.subtasks import Host, operator, table_of

pytestmark = [
    pytest.mark.fault,
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="/proc shows the files of a host"),
]

LIMIT_MB = 16
ROWS = 200_000
KEYS = 50


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """The executor's local directory."""
    folder = tmp_path / "local"
    folder.mkdir()
    return folder


@pytest.fixture
def host(tmp_path: Path, local: Path) -> Host:
    """A host of an operator with a memory limit."""
    spec = operator(tmp_path / "store", max_memory_mb=LIMIT_MB)
    return Host(replace(spec, backend=BackendSettings(local_directory=str(local))))


def table(rows: int = ROWS) -> pa.Table:
    return table_of([(f"key {number % KEYS}", 1) for number in range(rows)], 8)


def run(executor: Executor, host: Host, epoch: int, attempt: int) -> dict[str, int]:
    batches = iter(table().to_batches(max_chunksize=10_000))
    output = run_epoch(connect(executor, 0, ONE_HOST), host.sent(epoch, attempt), batches)
    return {row["key"]: row["rows"] for batch in output for row in batch.to_pylist()}


def host_of(executor: Executor) -> psutil.Process:
    (process,) = state_hosts(executor.pid)
    return process


def spilled_bytes(process: psutil.Process, local: Path) -> int:
    """The number of bytes in the unnamed files of a process in the local directory."""
    size = 0
    for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            if os.readlink(descriptor).startswith(f"{local}/"):
                size += descriptor.stat().st_size
        except FileNotFoundError:
            continue
    return size


def test_a_host_killed_while_it_spills_leaves_nothing_and_loses_nothing(
    executor: Executor, host: Host, local: Path
) -> None:
    assert run(executor, host, 0, 1) == {f"key {key}": ROWS // KEYS for key in range(KEYS)}
    with connect(executor, 0, ONE_HOST) as connection, connection.makefile("rwb") as file:
        stream: Any = file
        assert isinstance(wire.receive(stream), wire.Present)
        wire.send(stream, (host.sent(1, 2), True))
        assert isinstance(wire.receive(stream), wire.Accepted)
        sent = table()
        writer = pa.ipc.new_stream(pa.PythonFile(stream, mode="w"), sent.schema)
        for batch in sent.to_batches(max_chunksize=10_000):
            writer.write_batch(batch)
        file.flush()
        process = host_of(executor)
        deadline = time.monotonic() + 30
        while spilled_bytes(process, local) < 1 << 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert spilled_bytes(process, local) >= 1 << 20
        process.kill()
        process.wait(10)
    assert [*local.rglob("*")] == []
    assert run(executor, host, 1, 3) == {f"key {key}": 2 * ROWS // KEYS for key in range(KEYS)}
    assert spilled_bytes(host_of(executor), local) == 0


def test_a_disk_that_is_full_while_input_is_spilled_fails_the_epoch_and_nothing_else(
    executor: Executor, host: Host, local: Path
) -> None:
    """A limit for the size of the host's files replaces a full disk."""
    run(executor, host, 0, 1)
    process = host_of(executor)
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1 << 20, hard))
    for attempt in (2, 3):
        with pytest.raises(StateHostError) as caught:
            run(executor, host, 1, attempt)
        assert f"{local} does not take the rest" in str(caught.value)
        assert "died" not in str(caught.value)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    assert [*local.rglob("*")] == []
    assert run(executor, host, 1, 4) == {f"key {key}": 2 * ROWS // KEYS for key in range(KEYS)}
    assert host_of(executor) == process


@pytest.mark.skipif(os.getuid() != 0, reason="only root mounts file systems")
def test_a_small_file_system_that_fills_up_is_named(
    executor: Executor, host: Host, local: Path
) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(local)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this container mounts no file systems")
    try:
        with pytest.raises(StateHostError, match="No space left on device"):
            run(executor, host, 0, 1)
        subprocess.run(["mount", "-o", "remount,size=64m", str(local)], check=True)
        assert run(executor, host, 0, 2) == {f"key {key}": ROWS // KEYS for key in range(KEYS)}
        assert spilled_bytes(host_of(executor), local) == 0
    finally:
        subprocess.run(["umount", "--lazy", str(local)], check=True)
