"""A subtask emits the right rows in every epoch while hosts start, end and fall behind."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from checkpoint_store.errors import PartialEpochError, StoreMismatchError
from checkpoint_store.open_history import open_history
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.runs.run_errors import ContradictingRunsError
from spark_state.errors import ConfigurationError, FencedError, StateMigrationError, StateValueError
from spark_state.subtasks.epoch_request import BackendSettings
from tests.support.operators.subtasks import Host, OpenHost, operator
from tests.support.processors.processors import FailingAt, KeepsValues, RunningTotals

pytestmark = pytest.mark.usefixtures("each_backend")


@pytest.fixture(params=["heap", "rocksdb"])
def each_backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each backend in turn the default backend of operators."""
    defaults = (request.param, *BackendSettings.__init__.__defaults__[1:])  # type: ignore[index]
    monkeypatch.setattr(BackendSettings.__init__, "__defaults__", defaults)


ROWS_A = [("a", 1)]


def test_an_epoch_that_runs_again_gives_the_same_rows_and_counts_once(open_host: OpenHost) -> None:
    host = open_host()
    host.epoch(0, ROWS_A)
    first = host.epoch(1, ROWS_A, attempt=5)
    assert host.epoch(1, ROWS_A, attempt=6) == first == {"a": (2, 2)}
    assert host.epoch(1, ROWS_A, attempt=7) == first
    assert host.epoch(2, ROWS_A, attempt=8) == {"a": (3, 3)}


def test_an_epoch_may_run_again_with_other_rows(open_host: OpenHost) -> None:
    host = open_host()
    host.epoch(0, ROWS_A)
    host.epoch(1, [("a", 100), ("b", 1)], attempt=5)
    assert host.epoch(1, [("a", 1)], attempt=6) == {"a": (2, 2)}
    assert host.epoch(2, [("b", 1)], attempt=7) == {"b": (1, 1)}


def test_a_new_host_restores_what_the_old_one_published(open_host: OpenHost) -> None:
    old = open_host()
    old.epoch(0, [("a", 1), ("b", 1)])
    old.epoch(1, ROWS_A)
    assert open_host().epoch(2, [("a", 1), ("b", 1)]) == {"a": (3, 3), "b": (2, 2)}


def test_a_host_that_missed_epochs_catches_up(open_host: OpenHost) -> None:
    here, there = open_host(), open_host()
    for epoch in range(6):
        host = here if epoch % 3 else there
        assert host.epoch(epoch, ROWS_A) == {"a": (epoch + 1, epoch + 1)}


def test_epochs_that_spark_skipped_leave_no_gap_in_the_state(open_host: OpenHost) -> None:
    host = open_host()
    host.epoch(0, ROWS_A)
    assert host.epoch(7, ROWS_A) == {"a": (2, 2)}


def test_a_failing_processor_leaves_state_and_store_as_they_were(open_host: OpenHost) -> None:
    host = open_host(FailingAt())
    host.epoch(0, ROWS_A)
    with pytest.raises(ValueError, match="a negative value: -1"):
        host.epoch(1, [("a", 1), ("b", -1)])
    assert host.epoch(1, ROWS_A, attempt=9) == {"a": (2, 2)}
    assert open_host(FailingAt()).epoch(2, ROWS_A) == {"a": (3, 3)}


def test_a_task_that_is_gone_publishes_nothing(open_host: OpenHost) -> None:
    host = open_host()
    host.epoch(0, ROWS_A)
    calls: list[int] = []

    def gone_before_the_barrier() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise EOFError("the task was killed")

    with pytest.raises(EOFError):
        host.epoch(1, ROWS_A, check=gone_before_the_barrier)
    assert open_host().epoch(1, ROWS_A, attempt=9) == {"a": (2, 2)}


def test_a_host_refuses_older_runs_attempts_and_epochs(open_host: OpenHost) -> None:
    host = open_host()
    host.epoch(0, ROWS_A)
    host.epoch(1, ROWS_A, attempt=9)
    with pytest.raises(FencedError, match="a newer task took over"):
        host.epoch(1, ROWS_A, attempt=8)
    with pytest.raises(FencedError, match="a newer epoch took over"):
        host.epoch(0, ROWS_A, attempt=10)
    host.run_id = "run-2"
    assert host.epoch(1, ROWS_A, attempt=1) == {"a": (2, 2)}
    host.run_id = "run-1"
    with pytest.raises(FencedError, match="a newer run took over"):
        host.epoch(2, ROWS_A, attempt=11)


@contextmanager
def late_epoch(zombie: Host, attempt: int) -> Iterator[None]:
    """Let a zombie run epoch 1, but hold it back, before it writes, until the block has ended."""
    stuck, free = threading.Event(), threading.Event()

    def wait() -> None:
        stuck.set()
        assert free.wait(30)

    late = threading.Thread(target=zombie.epoch, args=(1, [("a", 1000)], attempt, wait))
    late.start()
    assert stuck.wait(30)
    yield
    free.set()
    late.join()


def test_a_zombie_attempt_that_publishes_late_is_never_picked_up(open_host: OpenHost) -> None:
    zombie, host = open_host(), open_host()
    host.epoch(0, ROWS_A)
    with late_epoch(zombie, attempt=2):
        assert host.epoch(1, ROWS_A, attempt=3) == {"a": (2, 2)}
    assert host.epoch(2, ROWS_A, attempt=4) == {"a": (3, 3)}
    assert open_host().epoch(3, ROWS_A, attempt=5) == {"a": (4, 4)}


def test_a_zombie_that_publishes_last_does_not_win_a_restart(open_host: OpenHost) -> None:
    zombie, host = open_host(), open_host()
    host.epoch(0, ROWS_A)
    host.epoch(1, ROWS_A, attempt=3)
    zombie.epoch(1, [("a", 1000)], attempt=2)
    assert open_host(run_id="run-2").epoch(2, ROWS_A, attempt=1) == {"a": (3, 3)}


def test_a_zombie_of_an_older_run_does_not_win_a_restart(open_host: OpenHost) -> None:
    old, new = open_host(run_id="run-1"), open_host(run_id="run-2")
    old.epoch(0, ROWS_A)
    with late_epoch(old, attempt=99):
        new.epoch(1, ROWS_A)
    # Both runs have epoch 1 with other contents: the next run must know which run Spark committed.
    with pytest.raises(ContradictingRunsError, match="runs 1 and 2"):
        open_host(run_id="run-3").epoch(2, ROWS_A)
    new.checkpoints.starts.note_reached("run-2", 2)
    assert open_host(run_id="run-4").epoch(2, ROWS_A) == {"a": (3, 3)}


def test_a_run_that_another_host_knows_to_be_over_is_refused(open_host: OpenHost) -> None:
    old = open_host(run_id="run-1")
    old.epoch(0, ROWS_A)
    new = open_host(run_id="run-2")
    new.epoch(1, ROWS_A)
    for host in (old, open_host(run_id="run-1")):
        with pytest.raises(
            FencedError, match=r"run-1. .* is over: run 2.* begun with epoch 1 .* stop one"
        ):
            host.epoch(1, [("a", 1000)], attempt=99)
    assert new.epoch(2, ROWS_A) == {"a": (3, 3)}


def test_a_run_that_registers_behind_a_zombie_is_told_instead_of_forgotten(
    open_host: OpenHost,
) -> None:
    """The zombie run registered after run-1, so the zombie's epoch has the newer run number."""
    run = open_host(run_id="run-1")
    run.epoch(0, ROWS_A)
    open_host(run_id="zombie").epoch(1, ROWS_A)
    with pytest.raises(FencedError, match="start the query again"):
        run.epoch(1, ROWS_A)
    assert open_host(run_id="run-2").epoch(2, ROWS_A) == {"a": (3, 3)}


def test_an_epoch_with_barriers_of_some_subtasks_is_not_built_upon(open_host: OpenHost) -> None:
    first, second = (open_host(parallelism=2, subtask=subtask) for subtask in range(2))
    rows = [(f"k{number}", 1) for number in range(20)]
    assert len(first.epoch(0, rows)) + len(second.epoch(0, rows)) == 20
    first.epoch(1, rows)
    with pytest.raises(PartialEpochError, match=r"epoch 1 is incomplete .* subtasks 1 did not"):
        first.epoch(2, rows)
    with pytest.raises(PartialEpochError):
        open_host(parallelism=2, subtask=1, run_id="run-2").epoch(2, rows)


@pytest.mark.parametrize("parallelisms", [(1, 3, 8, 2), (8, 1, 5)])
def test_parallelism_may_differ_at_every_run(
    open_host: OpenHost, parallelisms: tuple[int, ...]
) -> None:
    rows = [(f"k{number}", number) for number in range(50)]
    for epoch, parallelism in enumerate(parallelisms):
        emitted: dict[str, tuple[int, int]] = {}
        for subtask in range(parallelism):
            host = open_host(parallelism=parallelism, subtask=subtask, run_id=f"run-{epoch}")
            emitted |= host.epoch(epoch, rows)
        assert emitted == {key: (epoch + 1, value * (epoch + 1)) for key, value in rows}


def test_a_task_that_is_gone_ends_its_restore(open_host: OpenHost) -> None:
    old = open_host()
    for epoch in range(5):
        old.epoch(epoch, ROWS_A)
    checks: list[int] = []

    def gone() -> None:
        checks.append(1)
        if len(checks) == 3:
            raise InterruptedError("the task is gone")

    host = open_host(run_id="run-2")
    with pytest.raises(InterruptedError):
        host.epoch(5, ROWS_A, check=gone)
    assert host.session is not None
    assert host.session.state.handles is None
    assert host.epoch(5, ROWS_A, attempt=9) == {"a": (6, 6)}


class OtherSchema(RunningTotals):
    def init(self, handle: Any) -> None:
        self._totals = handle.getValueState("totals", "rows string, total bigint")


class OtherState(RunningTotals):
    def init(self, handle: Any) -> None:
        self._totals = handle.getValueState("others", "rows bigint, total bigint")


def test_another_schema_of_a_stored_state_is_refused_naming_both(open_host: OpenHost) -> None:
    open_host().epoch(0, ROWS_A)
    with pytest.raises(StateMigrationError) as caught:
        open_host(OtherSchema(), run_id="run-2").epoch(1, ROWS_A)
    message = str(caught.value)
    assert "state 'totals'" in message
    assert message.startswith("[STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION]")
    assert "in the store as (rows bigint, total bigint)" in message
    assert "declares (rows string, total bigint)" in message
    assert "field 'rows' of int64 cannot become string" in message


class ListOfTotals(RunningTotals):
    def init(self, handle: Any) -> None:
        self._totals = handle.getListState("totals", "rows bigint, total bigint")


def test_another_kind_of_a_stored_state_is_refused_naming_both(open_host: OpenHost) -> None:
    open_host().epoch(0, ROWS_A)
    with pytest.raises(StateMigrationError, match=r"as a value state, .* declares a list"):
        open_host(ListOfTotals(), run_id="run-2").epoch(1, ROWS_A)


def test_lists_and_maps_survive_failures_and_another_parallelism(open_host: OpenHost) -> None:
    rows = [(key, value) for key in "abcdefgh" for value in range(3)]
    host = open_host(KeepsValues())
    host.epoch(0, rows)
    with pytest.raises(ValueError, match="a negative value"):
        host.epoch(1, [*rows, ("z", -1)])
    assert host.epoch(1, rows, attempt=5) == dict.fromkeys("abcdefgh", (6, 3))
    two = {"parallelism": 2, "run_id": "run-2"}
    rescaled = [open_host(KeepsValues(), subtask=subtask, **two) for subtask in range(2)]
    outputs = [opened.epoch(2, rows) for opened in rescaled]
    assert all(outputs)
    assert outputs[0] | outputs[1] == dict.fromkeys("abcdefgh", (9, 3))


def test_a_state_declared_in_a_failed_epoch_only_can_be_declared_anew(open_host: OpenHost) -> None:
    class Wrong(RunningTotals):
        def init(self, handle: Any) -> None:
            self._totals = handle.getValueState("totals", "rows string, total bigint")

        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
            self._totals.update((0.5, 1))  # a float does not fit a string field
            yield from ()

    host = open_host(Wrong())
    with pytest.raises(StateValueError):
        host.epoch(0, ROWS_A)
    host.spec = replace(host.spec, processor=operator(Path()).processor)
    assert host.epoch(0, ROWS_A, attempt=5) == {"a": (1, 1)}


def test_a_lagging_host_catches_up_over_a_state_that_was_added(open_host: OpenHost) -> None:
    class WithAnother(RunningTotals):
        def init(self, handle: Any) -> None:
            super().init(handle)
            self._other = handle.getValueState("other", "n bigint")

        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
            self._other.update((1,))
            yield from super().handleInputRows(key, rows, timerValues)

    lagging, host = open_host(), open_host(WithAnother())
    lagging.epoch(0, ROWS_A)
    host.epoch(1, ROWS_A)
    lagging.spec = host.spec
    assert lagging.epoch(2, ROWS_A) == {"a": (3, 3)}


def test_a_stored_state_that_nobody_declares_is_carried_on(open_host: OpenHost) -> None:
    open_host().epoch(0, ROWS_A)
    assert open_host(OtherState(), run_id="run-2").epoch(1, ROWS_A) == {"a": (1, 1)}
    assert open_host(run_id="run-3").epoch(2, ROWS_A) == {"a": (2, 2)}


def test_a_query_that_has_run_does_not_start_with_an_empty_store(open_host: OpenHost) -> None:
    with pytest.raises(ConfigurationError, match=r"at epoch 5, but .* holds no state"):
        open_host().epoch(5, ROWS_A)


def test_a_store_that_vanishes_under_a_running_query_is_not_taken_for_empty(
    open_host: OpenHost, tmp_path: Path
) -> None:
    host = open_host()
    host.epoch(0, ROWS_A)
    host.epoch(1, ROWS_A)
    shutil.rmtree(tmp_path / "query")
    with pytest.raises(ConfigurationError, match="holds no state of the epochs before"):
        host.epoch(2, ROWS_A)


def test_start_empty_counts_for_the_request_that_carries_it(open_host: OpenHost) -> None:
    host = open_host()
    with pytest.raises(ConfigurationError):
        host.epoch(5, ROWS_A)
    settings = replace(host.spec.checkpoints, start_empty=True)
    host.spec = replace(host.spec, checkpoints=settings)
    assert host.epoch(5, ROWS_A, attempt=9) == {"a": (1, 1)}


def test_the_first_epoch_of_an_operator_that_started_empty_can_run_again(
    open_host: OpenHost,
) -> None:
    host = open_host(start_empty=True)
    for attempt in (6, 7):
        assert host.epoch(5, ROWS_A, attempt=attempt) == {"a": (1, 1)}
    assert host.epoch(6, ROWS_A, attempt=8) == {"a": (2, 2)}


def test_retention_goes_on_after_a_rollback(open_host: OpenHost, tmp_path: Path) -> None:
    host = open_host(min_epochs_to_retain=2)
    for run_id, epochs in (("run-1", range(40)), ("run-2", range(39, 62))):
        host.run_id = run_id
        for epoch in epochs:
            host.epoch(epoch, ROWS_A)
            host.finish_maintenance()
    assert len(list(tmp_path.glob("query/totals/manifests/*"))) <= 12


def test_a_new_operator_of_an_old_query_may_start_empty(open_host: OpenHost) -> None:
    assert open_host(start_empty=True).epoch(5, ROWS_A) == {"a": (1, 1)}
    assert open_host(run_id="run-2").epoch(6, ROWS_A) == {"a": (2, 2)}


def test_epochs_beyond_the_retention_are_deleted_and_the_rest_restores(
    open_host: OpenHost, tmp_path: Path
) -> None:
    host = open_host(min_epochs_to_retain=3)
    for epoch in range(31):
        host.epoch(epoch, ROWS_A)
        host.finish_maintenance()
    assert len(list(tmp_path.glob("query/totals/manifests/*"))) == 3
    assert not list(tmp_path.glob("query/totals/epochs/*/barrier-*"))[3:]
    assert open_host(run_id="run-2").epoch(31, ROWS_A) == {"a": (32, 32)}


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"max_parallelism": 16}, "max_parallelism"), ({"key_schema_json": "[]"}, "key columns")],
)
def test_a_store_of_another_configuration_is_refused(
    open_host: OpenHost, changes: dict[str, Any], field: str
) -> None:
    open_host().epoch(0, ROWS_A)
    with pytest.raises(StoreMismatchError, match=field):
        open_host(**changes)


def test_two_operators_of_one_name_are_refused(open_host: OpenHost) -> None:
    host = open_host()
    host.epoch(0, ROWS_A)
    host.spec = replace(host.spec, plan_id="another plan")
    with pytest.raises(ConfigurationError, match="two operators of this query are called 'totals'"):
        host.epoch(1, ROWS_A)


def test_one_task_that_runs_a_subtask_twice_is_refused(open_host: OpenHost) -> None:
    host = open_host()
    host.epoch(0, ROWS_A, attempt=4)
    with pytest.raises(ConfigurationError, match="its output is coalesced directly"):
        host.epoch(0, ROWS_A, attempt=4)


def test_rows_that_a_processor_does_not_read_are_skipped(open_host: OpenHost) -> None:
    class FirstRow(RunningTotals):
        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
            yield from super().handleInputRows(key, iter([next(rows)]), timerValues)

    host = open_host(FirstRow())
    assert host.epoch(0, [("a", 1), ("b", 2), ("a", 3), ("b", 4)]) == {"a": (1, 1), "b": (1, 2)}


class Forgetting(RunningTotals):
    """RunningTotals in which a negative value clears the key's state."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        seen = list(rows)
        yield from super().handleInputRows(key, iter(seen), timerValues)
        if any(row.value < 0 for row in seen):
            self._totals.clear()


def test_an_epoch_says_what_it_did(open_host: OpenHost, tmp_path: Path) -> None:
    host = open_host(Forgetting())
    host.epoch(0, [("a", 1), ("a", 2), ("b", 1)])
    first = host.report
    host.epoch(1, [("a", 3), ("b", -1), ("c", 1)])
    told = host.report
    assert first is not None
    assert told is not None
    assert first.last_publish_ms is None
    assert (told.timers, told.memory_bytes is None) == (0, False)
    assert (told.rows_in, told.rows_out) == (3, 3)
    assert (told.changed, told.removed, told.entries) == (2, 1, 2)
    (changelog,) = tmp_path.glob("query/totals/epochs/*1-*/changelog-*")
    assert told.written_bytes == changelog.stat().st_size
    times = (told.restore_ms, told.process_ms, told.write_ms, told.last_publish_ms)
    assert all(time is not None and time >= 0 for time in times)
    history = open_history(str(tmp_path / "query/totals"), state="totals")
    assert isinstance(history, OperatorHistory)
    (barrier,) = history.checkpoint_at(1).barriers
    assert barrier.report == told
