"""The state host starts on demand, is private to its user, and ends with its executor."""

from __future__ import annotations

import os
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import psutil
import pyarrow as pa
import pytest

from spark_state import executor as executor_module
from spark_state.errors import StateHostError
from spark_state.executor import (
    Executor,
    remove_directories_of_gone_executors,
    running_executor,
    socket_directory,
)
from spark_state.host import wire
from spark_state.host.client import run_epoch
from spark_state.host.host_death import WatchedHost
from spark_state.host.launcher import clean_environment, connect
from spark_state.host.server import _draw_other_numbers, _may_be_sent_early
from spark_state.subtasks.maintenance import Maintenance
from tests.support.operators.executors import ONE_HOST, state_hosts
from tests.support.operators.subtasks import (
    KEY_SCHEMA,
    Host,
    operator,
    stored_totals,
    table_of,
)
from tests.support.processors.processors import FailingAt, FailingToComplete

pytestmark = pytest.mark.process

# The id in an ACL entry that names no user.
ANYBODY = 0xFFFFFFFF


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files, of one test."""
    monkeypatch.setattr(executor_module.tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path


def await_none(executor: Executor, seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while state_hosts(executor.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert state_hosts(executor.pid) == []


def run(
    executor: Executor, host: Host, epoch: int, rows: list[tuple[str, int]], attempt: int = 0
) -> dict[str, int]:
    request = host.sent(epoch, attempt or epoch + 1)
    batches = table_of(rows, host.spec.max_parallelism).to_batches() if rows else []
    output = run_epoch(connect(executor, 0, ONE_HOST), request, iter(batches))
    return {row["key"]: row["rows"] for batch in output for row in batch.to_pylist()}


def test_one_host_serves_a_slot_and_keeps_its_state(executor: Executor, tmp_path: Path) -> None:
    host = Host(operator(tmp_path))
    assert run(executor, host, 0, [("a", 1), ("b", 1)]) == {"a": 1, "b": 1}
    (first,) = state_hosts(executor.pid)
    assert run(executor, host, 1, [("a", 1)]) == {"a": 2}
    assert run(executor, host, 2, []) == {}
    assert run(executor, host, 3, [("a", 1)]) == {"a": 3}
    assert state_hosts(executor.pid) == [first]


def test_many_tasks_at_once_start_one_host(executor: Executor) -> None:
    connections: list[socket.socket] = []
    threads = [
        threading.Thread(target=lambda: connections.append(connect(executor, 0, ONE_HOST)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(connections) == 8
    assert len(state_hosts(executor.pid)) == 1
    for connection in connections:
        connection.close()


def test_a_task_starts_the_hosts_of_all_slots_that_have_none(executor: Executor) -> None:
    connect(executor, 0, ONE_HOST).close()
    (first,) = state_hosts(executor.pid)
    with connect(executor, 5, replace(ONE_HOST, per_executor=4)) as connection:
        started = state_hosts(executor.pid)
        assert len(started) == 4
        assert first in started
        second = WatchedHost.at(connection).pid
    assert second != first.pid
    assert len({os.getsid(host.pid) for host in started}) == 4
    for subtask in range(4):
        connect(executor, subtask, replace(ONE_HOST, per_executor=4)).close()
    assert state_hosts(executor.pid) == started


@pytest.mark.parametrize("dies", [0, 1])
def test_hosts_that_were_started_together_do_not_need_each_other(
    executor: Executor, dies: int
) -> None:
    hosts = replace(ONE_HOST, per_executor=2)
    pids = []
    for subtask in range(2):
        with connect(executor, subtask, hosts) as connection:
            pids.append(WatchedHost.at(connection).pid)
    with connect(executor, dies, hosts) as connection:
        psutil.Process(pids[dies]).kill()
        with suppress(ConnectionError):
            while connection.recv(4096):
                pass
    for subtask in range(2):
        with connect(executor, subtask, hosts) as connection:
            assert isinstance(wire.receive(cast(BinaryIO, connection.makefile("rb"))), wire.Present)
            pid = WatchedHost.at(connection).pid
        assert (pid in pids) == (subtask != dies)
    assert len({*pids}) == 2


def test_hosts_that_were_started_together_draw_different_random_numbers() -> None:
    draw = np.random.default_rng  # imports numpy.random
    assert draw is not None
    np.random.seed(7)
    before = np.random.random()
    np.random.seed(7)
    _draw_other_numbers()
    assert np.random.random() != before


def test_a_process_with_very_many_open_files_starts_a_host(executor: Executor) -> None:
    """select() takes 1,024 files; a driver has a connection for each query that ever ran."""
    former, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        connect(executor, 0, ONE_HOST).close()
    finally:
        for file in opened:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (former, most))
    assert len(state_hosts(executor.pid)) == 1


def test_a_host_ends_with_its_executor(executor: Executor) -> None:
    connect(executor, 0, ONE_HOST).close()
    directory = socket_directory(executor)
    assert (directory / "0.sock").exists()
    os.kill(executor.pid, signal.SIGKILL)
    await_none(executor)
    assert not directory.exists()


def test_setting_the_systems_clock_does_not_make_an_executor_another_one(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot = psutil.boot_time()
    monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: boot + 1)
    assert executor.is_running()
    assert running_executor(executor.pid) == executor


def test_an_idle_host_ends_and_the_next_task_starts_another(
    executor: Executor, tmp_path: Path
) -> None:
    connect(executor, 0, replace(ONE_HOST, idle_seconds=1)).close()
    await_none(executor)
    assert run(executor, Host(operator(tmp_path)), 0, [("a", 1)]) == {"a": 1}


def test_a_killed_host_is_replaced_and_its_state_restored(
    executor: Executor, tmp_path: Path
) -> None:
    host = Host(operator(tmp_path))
    run(executor, host, 0, [("a", 1)])
    (first,) = state_hosts(executor.pid)
    first.kill()
    first.wait(10)
    assert run(executor, host, 1, [("a", 1)]) == {"a": 2}


@pytest.mark.parametrize("mode", [0o755, 0o3777])
def test_sockets_are_in_a_directory_that_only_the_user_can_enter(
    executor: Executor, temporary: Path, mode: int
) -> None:
    """Directories inherit the set-group-ID bit, for example on Kubernetes volumes with fsGroup."""
    temporary.chmod(mode)
    inherited = mode & stat.S_ISGID
    directory = socket_directory(executor)
    for path in (directory, directory.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700 | inherited
    assert socket_directory(executor) == directory


@pytest.mark.parametrize("mode", [0o755, 0o2710, 0o701, 0o704, 0o720])
def test_a_directory_that_others_can_use_is_refused(
    executor: Executor, temporary: Path, mode: int
) -> None:
    parent = temporary / f"cowstate-{os.getuid()}"
    parent.mkdir()
    parent.chmod(mode)
    shown = stat.filemode(stat.S_IFDIR | mode)
    with pytest.raises(StateHostError, match=f"without permissions for others, .* is {shown} of"):
        socket_directory(executor)


def test_a_link_to_a_private_directory_is_refused(executor: Executor, temporary: Path) -> None:
    (temporary / "elsewhere").mkdir(mode=0o700)
    (temporary / f"cowstate-{os.getuid()}").symlink_to(temporary / "elsewhere")
    with pytest.raises(StateHostError, match="must be a directory of uid"):
        socket_directory(executor)


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="ACLs are set as Linux has them")
def test_a_default_acl_gives_nobody_a_right(executor: Executor, temporary: Path) -> None:
    """The default ACL gives user 12345 all rights to new files; the group's mask takes the rights
    away."""
    entries = [(1, 7, ANYBODY), (2, 7, 12345), (4, 7, ANYBODY), (16, 7, ANYBODY), (32, 7, ANYBODY)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(temporary, "system.posix_acl_default", acl)
    except OSError as error:
        pytest.skip(f"the file system of {temporary} has no ACLs: {error}")
    directory = socket_directory(executor)
    given = os.getxattr(directory, "system.posix_acl_access")
    rights = {(tag, right) for tag, right, _ in struct.iter_unpack("<HHI", given[4:])}
    assert (2, 7) in rights
    assert {right for tag, right in rights if tag in (16, 32)} == {0}


def test_directories_of_gone_executors_are_removed_and_those_of_others_are_not(
    executor: Executor, temporary: Path
) -> None:
    """Only a lock shows that a process in another pid namespace is working."""
    live = socket_directory(executor)
    gone = socket_directory(replace(executor, started=executor.started - 100))
    (gone / "0.lock").touch()
    elsewhere = live.parent / (gone.name[:-1] + "x")  # not a name of cowstate's
    working, killed, never_begun = (live.parent / f"{gone.name}{digit}" for digit in "012")
    for folder in (elsewhere, working, killed, never_begun):
        folder.mkdir()
    (killed / "7").mkdir()
    (killed / "7" / "table.sst").touch()
    with holding(working), holding(killed) as holder:
        holder.kill()
        holder.wait()
        remove_directories_of_gone_executors()
        assert sorted(live.parent.iterdir()) == sorted([live, elsewhere, working])
    remove_directories_of_gone_executors()
    assert sorted(live.parent.iterdir()) == sorted([live, elsewhere])


def test_nothing_is_removed_below_a_directory_of_another_user(
    executor: Executor, temporary: Path
) -> None:
    gone = socket_directory(replace(executor, started=executor.started - 100))
    gone.parent.chmod(0o777)
    remove_directories_of_gone_executors()
    assert gone.is_dir()


@contextmanager
def holding(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that holds a folder's lock."""
    code = (
        "import sys; from pathlib import Path\n"
        "from checkpoint_store.files.held_folder import held\n"
        "with held(lambda: Path(sys.argv[1])): print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        yield process


def test_a_socket_path_that_is_too_long_is_refused_with_the_way_out(
    executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("d" * 100)
    long.mkdir()
    monkeypatch.setattr(executor_module.tempfile, "gettempdir", lambda: str(long))
    with pytest.raises(StateHostError, match=r"allows 10\d; set TMPDIR .* to a shorter directory"):
        connect(executor, 0, ONE_HOST)


def test_a_host_gets_the_users_environment_without_sparks() -> None:
    kept = clean_environment(
        {
            "HOME": "/home/u",
            "AWS_REGION": "eu",
            "PYTHON_WORKER_FACTORY_SECRET": "secret",
            "SPARK_HOME": "/spark",
            "PYSPARK_PYTHON": "python3",
            "PYTHONHASHSEED": "0",
        }
    )
    assert kept.keys() == {"HOME", "AWS_REGION", "PYTHONPATH", "PYTHONUNBUFFERED"}


def test_a_processors_error_arrives_with_its_type_and_traceback(
    executor: Executor, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="a negative value: -1") as caught:
        run(executor, Host(operator(tmp_path, FailingAt())), 0, [("a", -1)])
    (note,) = caught.value.__notes__
    assert "in handleInputRows" in note
    assert "processors.py" in note
    whole = "".join(traceback.format_exception(caught.value))
    assert whole.count("a negative value: -1") == 1


def test_small_output_does_not_wait_for_the_completion_of_its_epoch(
    executor: Executor, tmp_path: Path
) -> None:
    host = Host(operator(tmp_path, FailingToComplete(), key_schema_json=KEY_SCHEMA))
    assert run(executor, host, 0, [("a", 1)]) == {"a": 1}
    assert not [*tmp_path.glob("query/totals/manifests/*")]
    assert run(executor, host, 1, [("a", 1)]) == {"a": 2}
    assert stored_totals(tmp_path / "query" / "totals", 0) == {"a": (1, 1)}
    assert stored_totals(tmp_path / "query" / "totals", 1) == {"a": (2, 2)}


def test_large_output_is_sent_after_the_completion_of_its_epoch(
    executor: Executor, tmp_path: Path
) -> None:
    host = Host(operator(tmp_path, FailingToComplete()))
    rows = [(f"key {number}", 1) for number in range(5_000)]
    with pytest.raises(OSError, match="no manifest today"):
        run(executor, host, 0, rows)
    assert run(executor, host, 0, rows, attempt=9) == dict.fromkeys(dict(rows), 1)
    assert run(executor, host, 1, rows) == dict.fromkeys(dict(rows), 2)


def test_output_of_an_operator_with_a_clock_is_sent_after_the_completion(
    tmp_path: Path, maintenance: Maintenance
) -> None:
    """The clock looks for the newest completed epoch when the batch has ended."""
    host = Host(operator(tmp_path)).open(maintenance)
    spec = host.spec.processor
    plan = replace(spec.run_plan, inputs=replace(spec.run_plan.inputs, tells_time=True))
    timed = replace(host.spec, processor=replace(spec, run_plan=plan))
    assert host.session is not None
    untimed = host.request(0, 1)
    with (
        host.session.run(host.session.accept(untimed, lambda: None), pa.table({})) as epoch,
        epoch.output,
    ):
        assert _may_be_sent_early(untimed, epoch)
        assert not _may_be_sent_early(replace(untimed, spec=timed), epoch)
    host.close()


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("a lock inside")
        self.lock = threading.Lock()


class LosesItsMessage(Exception):
    """An error whose pickle keeps only the class."""

    def __reduce__(self) -> tuple[type[BaseException], tuple[()]]:
        return LosesItsMessage, ()


@pytest.mark.parametrize(
    ("error", "arrives_as"),
    [
        (LosesItsMessage("account 17 is closed"), LosesItsMessage),
        (KeyError("k"), KeyError),
        (EOFError("mine"), EOFError),
        (SystemExit(3), SystemExit),
        (Unpicklable(), StateHostError),
    ],
)
def test_any_error_can_cross_the_wire(
    error: BaseException, arrives_as: type[BaseException]
) -> None:
    with pytest.raises(arrives_as) as caught:
        wire.Failed.of(error).reraise()
    whole = "".join(traceback.format_exception(caught.value))
    assert type(error).__name__ in whole
    assert str(error) in whole


def broken_off(after: Callable[[Any, pa.Table], None], executor: Executor, host: Host) -> None:
    """Send a request and some input, then leave without EndOfInput."""
    with connect(executor, 0, ONE_HOST) as connection, connection.makefile("rwb") as file:
        assert isinstance(wire.receive(file), wire.Present)  # type: ignore[arg-type]
        wire.send(file, (host.sent(1, 50), True))  # type: ignore[arg-type]
        assert isinstance(wire.receive(file), wire.Accepted)  # type: ignore[arg-type]
        after(file, table_of([("a", 1000)], 8))


def whole_stream(file: Any, table: pa.Table) -> None:
    wire.send_batches(file, table.schema, table.to_batches())


def stream_cut_by(count: int) -> Callable[[Any, pa.Table], None]:
    """Return a function that sends a stream without the last `count` bytes; 8 bytes are the end
    marker."""

    def send(file: Any, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        file.write(sink.getvalue().to_pybytes()[:-count])
        file.flush()

    return send


@pytest.mark.parametrize("after", [whole_stream, stream_cut_by(20), stream_cut_by(8)])
def test_input_that_breaks_off_never_becomes_durable(
    executor: Executor, tmp_path: Path, after: Callable[[Any, pa.Table], None]
) -> None:
    host = Host(operator(tmp_path))
    run(executor, host, 0, [("a", 1)])
    broken_off(after, executor, host)
    assert run(executor, host, 1, [("a", 1)], attempt=51) == {"a": 2}
    assert len(list(tmp_path.glob("query/totals/epochs/*1-*/barrier-*"))) == 1
