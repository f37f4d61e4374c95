"""A host ends if its processor never returns, and the next attempt has the state again."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from spark_state.errors import StateHostError
from spark_state.executor import Executor
from spark_state.host import client
from spark_state.host.client import run_epoch
from spark_state.host.launcher import connect
from spark_state.subtasks import subtask_session
from tests.support.operators.executors import ONE_HOST, state_hosts
from tests.support.operators.subtasks import Host, operator, table_of
from tests.support.processors.processors import RunningTotals

pytestmark = [pytest.mark.fault, pytest.mark.process]

HANGS = -1
ROWS = [(key, 1) for key in "abcdefgh"]


def sleep_for_ever() -> None:
    while True:
        time.sleep(60)


def keep_pythons_lock_for_ever() -> None:
    ctypes.PyDLL(None).sleep(100_000)


class HangingOnce(RunningTotals):
    """A processor that hangs in the epoch with a row of value `HANGS`, unless `marker` exists."""

    def __init__(self, how: Any, marker: Path) -> None:
        self._how = how
        self._marker = marker

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        # Attempts wait for seconds in this host instead of minutes. `init` also runs in the process
        # of the tests.
        subtask_session._BUSY_SECONDS = -110
        seen = list(rows)
        if any(row.value == HANGS for row in seen) and not self._marker.exists():
            self._marker.touch()
            self._how()
        yield from super().handleInputRows(key, iter(seen), timerValues)


class Tasks:
    """The tasks of two subtasks that share a host."""

    def __init__(self, executor: Executor, folder: Path, how: Any) -> None:
        self._executor = executor
        self.marker = folder / "hangs"
        processor = HangingOnce(how, self.marker)
        spec = operator(folder / "store", processor, parallelism=2)
        self.hosts = [Host(spec, subtask) for subtask in range(2)]
        self._attempt = 0

    def run(self, subtask: int, epoch: int, rows: list[tuple[str, int]]) -> dict[str, int]:
        self._attempt += 1
        host = self.hosts[subtask]
        group = 4 * subtask
        table = table_of(rows, 8)
        mine = [group <= number < group + 4 for number in table.column(2).to_pylist()]
        batches = table.filter(mine).to_batches()
        request = host.sent(epoch, self._attempt)
        output = run_epoch(connect(self._executor, 0, ONE_HOST), request, iter(batches))
        return {row["key"]: row["total"] for batch in output for row in batch.to_pylist()}

    def begin(self, subtask: int, epoch: int, rows: list[tuple[str, int]]) -> list[str]:
        """Begin an attempt that hangs. The returned list receives the error of the attempt."""
        errors: list[str] = []

        def attempt() -> None:
            try:
                self.run(subtask, epoch, rows)
            except StateHostError as error:
                errors.append(str(error))

        threading.Thread(target=attempt, daemon=True).start()
        while not self.marker.exists():
            time.sleep(0.05)
        return errors


def with_one_that_hangs() -> list[tuple[str, int]]:
    return [(key, HANGS if key == "a" else 1) for key, _ in ROWS]


def both(tasks: Tasks, epoch: int, rows: list[tuple[str, int]]) -> dict[str, int]:
    return {**tasks.run(0, epoch, rows), **tasks.run(1, epoch, rows)}


def subtask_of_a() -> int:
    return int(table_of([("a", 1)], 8).column(2)[0].as_py() >= 4)


def test_an_attempt_that_waits_in_vain_ends_the_host_and_the_next_one_restores(
    executor: Executor, tmp_path: Path
) -> None:
    tasks = Tasks(executor, tmp_path, sleep_for_ever)
    own, neighbour = subtask_of_a(), 1 - subtask_of_a()
    assert both(tasks, 0, ROWS) == dict.fromkeys("abcdefgh", 1)
    (first,) = state_hosts(executor.pid)
    errors = tasks.begin(own, 1, with_one_that_hangs())
    tasks.run(neighbour, 1, ROWS)
    with pytest.raises(StateHostError) as waited:
        tasks.run(own, 1, with_one_that_hangs())
    told = str(waited.value)
    assert "HangingOnce.handleInputRows with key ('a',) does not return" in told
    assert "attempt 3 of epoch 1 has been running for 1" in told
    assert both(tasks, 1, with_one_that_hangs()) == {**dict.fromkeys("abcdefgh", 2), "a": 0}
    assert both(tasks, 2, ROWS) == {**dict.fromkeys("abcdefgh", 3), "a": 1}
    assert first not in state_hosts(executor.pid)
    assert len(state_hosts(executor.pid)) == 1
    assert "it ended itself, because one of its subtasks did not return" in errors[0]


def test_a_host_that_does_not_answer_is_ended_by_the_task_that_waits(
    executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_SILENT_SECONDS", 5)
    tasks = Tasks(executor, tmp_path, keep_pythons_lock_for_ever)
    own, neighbour = subtask_of_a(), 1 - subtask_of_a()
    assert both(tasks, 0, ROWS) == dict.fromkeys("abcdefgh", 1)
    (first,) = state_hosts(executor.pid)
    errors = tasks.begin(own, 1, with_one_that_hangs())
    with pytest.raises(StateHostError, match=r"has not answered for 5 s.*It was ended"):
        tasks.run(neighbour, 1, ROWS)
    assert both(tasks, 1, with_one_that_hangs()) == {**dict.fromkeys("abcdefgh", 2), "a": 0}
    assert first not in state_hosts(executor.pid)
    assert "ended, because it did not answer a task" in errors[0]
