"""A host short of memory gives up the state of idle queries and keeps the state of others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from spark_state.errors import ConfigurationError, FencedError, MemoryLimitError
from spark_state.host.run_rhythms import RunRhythms
from spark_state.host.sessions import Sessions
from spark_state.subtasks.epoch_attempt import EpochAttempt
from spark_state.subtasks.pending_snapshot import PendingSnapshot, Replaced, Written
from spark_state.subtasks.unnamed_files import UnnamedFiles
from tests.support.manual_clock import ManualClock
from tests.support.operators.subtasks import Host, operator
from tests.support.processors.processors import LongTexts


@dataclass
class Queries:
    """Queries of one host. State may take 52 MiB in all. A query's state takes about 10 MiB, twice
    as much with longer texts, and the undo data of an epoch in addition."""

    folder: Path
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.sessions = Sessions(self.clock)
        self.hosts: dict[str, Host] = {}
        self.epochs: Counter[str] = Counter()
        self.attempts = count()

    def run(
        self,
        name: str,
        length: int = 100_000,
        ended: tuple[str, ...] = (),
        run_id: str | None = None,
    ) -> set[Any]:
        """Run one epoch of an operator. Return how often the keys were seen before. `run_id`: the
        run of the query; if None, the operator is the only operator of its query."""
        if name not in self.hosts:
            spec = operator(self.folder / name, LongTexts(length), max_memory_mb=104)
            self.hosts[name] = Host(spec, run_id=run_id or f"run of {name}")
        host, epoch = self.hosts[name], self.epochs[name]
        attempt = next(self.attempts)
        request = host.request(epoch, attempt)
        request = replace(request, task=replace(request.task, ended_runs=ended))
        rows = [(f"key {number}", 1) for number in range(100)]
        with self.sessions.subtask(request) as host.session:
            counted = host.epoch(epoch, rows, attempt)
        self.epochs[name] += 1
        return {seen for seen, _ in counted.values()}

    def held(self) -> set[str]:
        """Return the operators whose state is in memory."""
        return {
            name
            for name, host in self.hosts.items()
            if host.session is not None and host.session.state.handles is not None
        }


@pytest.fixture
def queries(tmp_path: Path) -> Iterator[Queries]:
    run = Queries(tmp_path)
    yield run
    run.sessions.close()


class TestQueriesThatHaveEnded:
    def test_their_state_is_let_go_of_before_that_of_others_is_refused(
        self, queries: Queries, caplog: pytest.LogCaptureFixture
    ) -> None:
        for number in range(6):
            assert queries.run(f"query {number}") == {0}
            queries.clock.now += 2
        assert 1 < len(queries.held()) < 6
        assert queries.hosts["query 0"].request(0, 0).store_url in caplog.text
        assert queries.run("query 0") == {1}, "it is in the store"

    def test_the_driver_knows_it_without_any_pause(self, queries: Queries) -> None:
        for number in range(6):
            earlier = tuple(f"run of query {before}" for before in range(number))
            assert queries.run(f"query {number}", ended=earlier) == {0}
        assert 1 < len(queries.held()) < 6

    def test_only_as_many_as_it_takes_and_the_oldest_first(self, queries: Queries) -> None:
        for name in ("a", "b", "c"):
            queries.run(name)
            queries.clock.now += 2
        queries.run("d", length=300_000)
        assert queries.held() == {"b", "c", "d"}

    @pytest.mark.parametrize("pause_seconds", [0.5, 60.0])
    def test_queries_that_go_on_keep_theirs(self, queries: Queries, pause_seconds: float) -> None:
        for _ in range(3):
            queries.run("a")
            queries.run("b")
            queries.clock.now += pause_seconds
        with pytest.raises(MemoryLimitError, match="that of all subtasks there"):
            queries.run("c", length=200_000)
        assert queries.held() == {"a", "b", "c"}
        queries.clock.now += 4 * pause_seconds + 1.5
        queries.run("b")
        assert queries.run("c") == {0}
        assert queries.held() == {"b", "c"}

    def test_queries_that_come_back_do_not_take_turns_for_long(self, queries: Queries) -> None:
        """Each pause is longer than expected, until the host expects such a pause."""
        refused_after = 0
        for _ in range(100):
            try:
                for name in ("a", "b"):
                    queries.run(name, length=280_000)
                    queries.clock.now += 5
            except MemoryLimitError:
                break
            refused_after += 1
        assert 1 <= refused_after <= 3

    def test_operators_of_one_run_do_not_take_turns(self, queries: Queries) -> None:
        """The query cannot run, and fails in its first batch, however slow an operator is."""
        queries.run("first", length=280_000, run_id="run")
        queries.clock.now += 100
        with pytest.raises(MemoryLimitError):
            queries.run("second", length=280_000, run_id="run")
        assert "first" in queries.held()


class TestWhatIsKept:
    """A session gives up only the state, and keeps the facts that guard a store's epochs."""

    def test_a_task_that_runs_an_operator_twice_is_still_refused(self, queries: Queries) -> None:
        queries.run("a")
        first = queries.hosts["a"].request(0, 1)
        assert queries.hosts["a"].session is not None
        assert queries.hosts["a"].session.give_up_state()
        with (
            queries.sessions.subtask(first) as session,
            pytest.raises(ConfigurationError, match="twice in epoch 0"),
        ):
            session.accept(first, lambda: None)

    def test_a_request_that_is_refused_says_nothing_of_its_run(self, queries: Queries) -> None:
        queries.run("a", run_id="run 1")
        older = queries.hosts.pop("a")
        queries.run("a", run_id="run 2")
        with pytest.raises(FencedError), queries.sessions.subtask(older.request(2, 99)):
            pass
        for number in range(2):
            queries.run(f"other {number}", ended=("run 1",))
        with pytest.raises(MemoryLimitError):
            queries.run("too much", length=280_000, ended=("run 1",))
        assert "a" in queries.held()

    @pytest.mark.parametrize(
        ("job", "is_merge", "is_given_up"),
        [
            ("waiting", False, True),
            ("running", False, False),
            ("running", True, True),
            ("ended", False, True),
        ],
    )
    def test_state_that_a_snapshot_holds_is_not_let_go_of(
        self, queries: Queries, job: str, is_merge: bool, is_given_up: bool
    ) -> None:
        queries.run("a")
        session = queries.hosts["a"].session
        assert session is not None
        assert session.state.handles is not None
        assert session._newest is not None
        request = queries.hosts["a"].request(0, 1)
        checkpoints = queries.hosts["a"].checkpoints
        attempt = EpochAttempt(request, session._newest, checkpoints, lambda: None)
        writing, future = ScriptedWriting(), Future[list[Written]]()
        if job != "waiting":
            future.set_running_or_notify_cancel()
        if job == "ended":
            future.set_result([])
        session.snapshots._pending = PendingSnapshot(
            writing,
            Replaced(session.state.handles, 0, 0 if is_merge else len(session.state.handles)),
            UnnamedFiles(attempt, time.monotonic),
            lambda job: future,
            is_awaited=False,
        )
        assert session.give_up_state() == is_given_up
        assert queries.held() == (set() if is_given_up else {"a"})
        assert writing.released == (job == "waiting")
        if is_given_up:
            assert queries.run("a") == {1}


@dataclass
class ScriptedWriting:
    """A snapshot that writes nothing."""

    released: bool = False

    def write(self) -> list[Written]:
        return []

    def release(self) -> None:
        self.released = True


def test_runs_without_a_store_are_forgotten() -> None:
    runs = RunRhythms()
    runs.begin_use("served", now=0)
    for run_id in ("kept", "gone"):
        runs.begin_use(run_id, now=0)
        runs.end_use(run_id, now=0)
    runs.note_ended(["gone", "never met"])
    assert runs.has_ended("gone", now=0)
    runs.forget_others(["kept"])
    assert {*runs._rhythms} == {"kept", "served"}
    assert not runs.has_ended("kept", now=1)
    assert not runs.has_ended("served", now=1_000)
