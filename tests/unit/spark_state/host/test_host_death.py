"""The exit status and the kernel's counts tell how a host died."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_state.errors import StateHostError
from spark_state.executor import Executor
from spark_state.host import host_death
from spark_state.host.client import run_epoch
from spark_state.host.host_death import HostDeath, WatchedHost, counted_in, counters
from spark_state.host.launcher import connect
from spark_state.processor.pickles import dumps
from tests.support.operators.executors import ONE_HOST
from tests.support.operators.subtasks import Host, operator, table_of
from tests.support.processors.processors import RunningTotals

FOR_MEMORY = "killed by the operating system for memory"
SIGKILL = "ended by SIGKILL"
KILLED = int(signal.SIGKILL)
LIMIT = r".* spark\.cowstate\.maxMemoryMB of each host is 512$"


@pytest.mark.parametrize(
    ("status", "counts", "how", "advice"),
    [
        (KILLED, (3, 4), FOR_MEMORY, "oom_kill of its control group rose from 3 to 4" + LIMIT),
        (KILLED, None, SIGKILL, "The operating system may have killed it for memory" + LIMIT),
        (KILLED, (3, 3), SIGKILL, "The kernel has not killed it for memory"),
        (None, (0, 1), FOR_MEMORY, "oom_kill"),
        (None, (1, 1), "nobody knows how", "^$"),
        (int(signal.SIGSEGV), (3, 4), "ended by SIGSEGV", "^$"),
        (int(signal.SIGTERM), (3, 4), "ended by SIGTERM", "^$"),
        (3 << 8, (3, 4), "ended with exit code 3", "^$"),
        (int(signal.SIGBUS), (3, 4), "ended by SIGBUS", "^(?!.*memory).*read errors of the disk"),
    ],
)
def test_a_death_is_told_in_words_and_laid_to_memory_only_if_it_may_be(
    status: int | None, counts: tuple[int, int] | None, how: str, advice: str
) -> None:
    death = HostDeath(status, counts)
    assert death.how() == how
    assert re.search(advice, death.advice(512), re.DOTALL)


def test_a_limit_of_memory_that_is_not_set_is_told() -> None:
    advice = HostDeath(KILLED, None).advice(None)
    assert "spark.cowstate.maxMemoryMB of each host is not set" in advice


def test_the_count_is_found_in_both_versions_of_control_groups(tmp_path: Path) -> None:
    of_version_1 = "5:cpu,cpuacct:/a\n4:memory:/a/b\n0::/\n"
    assert [*counters(of_version_1, tmp_path)][:2] == [
        tmp_path / "memory" / "a/b" / "memory.oom_control",
        tmp_path / "memory" / "memory.oom_control",
    ]
    assert [*counters("0::/pod/x\n", tmp_path)] == [
        tmp_path / "pod/x" / "memory.events",
        tmp_path / "memory.events",
    ]
    events = tmp_path / "memory.events"
    events.write_text("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\n")
    assert counted_in(events) == 2
    events.write_text("low 0\n")
    assert counted_in(events) is None
    assert counted_in(tmp_path / "none") is None


def test_the_status_of_a_process_that_somebody_has_waited_for_is_not_known() -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    assert WatchedHost(process.pid, None).death() == HostDeath(None, None)


def dies(how: Callable[[], Any]) -> type[RunningTotals]:
    class Dying(RunningTotals):
        def init(self, handle: Any) -> None:
            how()
            time.sleep(60)  # another thread may get the signal, a little later

    return Dying


def message_of_death(executor: Executor, folder: Path, how: Callable[[], Any]) -> str:
    host = Host(operator(folder, max_memory_mb=256))
    processor = replace(host.spec.processor, pickled_processor=dumps(dies(how)()))
    host.spec = replace(host.spec, processor=processor)
    connection: socket.socket = connect(executor, 0, ONE_HOST)
    of_store = rf"died in epoch 0 .*{folder}/query/totals"
    with pytest.raises(StateHostError, match=of_store) as caught:
        [*run_epoch(connection, host.sent(0, 1), iter(table_of([("a", 1)], 8).to_batches()))]
    return str(caught.value)


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells the status")
class TestDeadHosts:
    def test_sigkill_is_told_with_the_limit_of_the_memory(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        message = message_of_death(executor, tmp_path, lambda: os.kill(os.getpid(), signal.SIGKILL))
        assert "died in epoch 0 (ended by SIGKILL" in message
        assert "spark.cowstate.maxMemoryMB of each host is 256" in message

    def test_a_count_that_rises_meanwhile_says_that_it_was_for_memory(
        self, executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        counter = tmp_path / "memory.events"
        counter.write_text("oom_kill 7\n")
        monkeypatch.setattr(host_death, "_own_counter", lambda: counter)

        def killed() -> None:
            counter.write_text("oom_kill 8\n")
            os.kill(os.getpid(), signal.SIGKILL)

        message = message_of_death(executor, tmp_path, killed)
        assert "(killed by the operating system for memory" in message
        assert "oom_kill of its control group rose from 7 to 8" in message

    @pytest.mark.parametrize(
        ("how", "words"),
        [
            (lambda: os.kill(os.getpid(), signal.SIGSEGV), "ended by SIGSEGV"),
            (lambda: os.kill(os.getpid(), signal.SIGTERM), "ended by SIGTERM"),
            (lambda: os._exit(3), "ended with exit code 3"),
        ],
    )
    def test_other_deaths_are_not_laid_to_memory(
        self, executor: Executor, tmp_path: Path, how: Callable[[], Any], words: str
    ) -> None:
        message = message_of_death(executor, tmp_path, how)
        assert f"died in epoch 0 ({words}" in message
        assert "for memory" not in message
