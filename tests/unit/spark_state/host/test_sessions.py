"""A host process keeps sessions in use, and drops sessions after an idle time."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_state.errors import FencedError
from spark_state.executor import private_directory, running_executor
from spark_state.host import sessions as sessions_module
from spark_state.host.sessions import Sessions
from spark_state.subtasks.epoch_request import BackendSettings
from tests.support.manual_clock import ManualClock
from tests.support.operators.subtasks import Host, operator, table_of
from tests.support.stores.hosted_file_system import HostedFileSystem


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sessions(clock: ManualClock) -> Iterator[Sessions]:
    held = Sessions(clock)
    yield held
    held.close()


def test_an_older_run_of_another_parallelism_does_not_evict_the_newer_one(
    sessions: Sessions, tmp_path: Path
) -> None:
    older = Host(operator(tmp_path), run_id="run-1")
    newer = Host(operator(tmp_path, parallelism=2), run_id="run-2")
    with sessions.subtask(older.request(0, 1)):
        pass
    with sessions.subtask(newer.request(0, 1)) as session:
        pass
    with (
        pytest.raises(FencedError, match="a newer run took over"),
        sessions.subtask(older.request(0, 2)),
    ):
        pass
    with sessions.subtask(newer.request(0, 2)) as same:
        assert same is session


def test_a_store_is_opened_again_with_other_options(sessions: Sessions, tmp_path: Path) -> None:
    """Credentials change between runs, while the host lives."""
    spec = operator(tmp_path, store_root=f"hosted:///{tmp_path.name}")

    def with_options(run_id: str, **options: Any) -> Host:
        checkpoints = replace(spec.checkpoints, store_options={"secret": "hunter2", **options})
        return Host(replace(spec, checkpoints=checkpoints), run_id=run_id)

    with sessions.subtask(with_options("run-1", host="here").request(0, 1)) as first:
        first.accept(with_options("run-1", host="here").request(0, 1), lambda: None)
    with sessions.subtask(with_options("run-1", host="here").request(0, 2)) as same:
        assert same is first
    moved = with_options("run-2", host="there")
    assert "hunter2" not in repr(moved.request(0, 1))
    with sessions.subtask(moved.request(0, 1)) as other:
        assert other is not first
    places = {place[0]: [*objects] for place, (objects, _) in HostedFileSystem.places.items()}
    for host in ("here", "there"):
        assert any(f"/{tmp_path.name}/query/totals/runs/" in name for name in places[host])


def test_local_copies_of_an_ended_query_go_while_the_host_lives(
    clock: ManualClock, tmp_path: Path
) -> None:
    executor = running_executor(os.getpid())
    assert executor is not None
    backend = BackendSettings(kind="rocksdb", local_directory=str(tmp_path))
    host = Host(operator(tmp_path / "store", backend=backend))
    sessions = Sessions(clock, executor)
    with sessions.subtask(host.request(0, 1)) as session:
        request = host.request(0, 1)
        attempt = session.accept(request, lambda: None)
        with session.run(attempt, table_of([("a", 1)], 8)) as epoch:
            epoch.output.close()
    copies = private_directory(tmp_path, executor) / "copies"
    assert len([*copies.iterdir()]) == 1
    clock.now = 601.0
    sessions.drop_unused(600)
    assert len(sessions) == 0
    clock.now = 1202.0
    sessions.drop_unused(600)
    assert [*copies.iterdir()] == []
    sessions.close()


def test_stores_that_are_unused_are_dropped_while_others_are_busy(
    sessions: Sessions, clock: ManualClock, tmp_path: Path
) -> None:
    stopped, busy = Host(operator(tmp_path / "stopped")), Host(operator(tmp_path / "busy"))
    with sessions.subtask(stopped.request(0, 1)):
        pass
    with sessions.subtask(busy.request(0, 1)) as session:
        clock.now = 1000.0
        sessions.drop_unused(600)
        assert len(sessions) == 1
    with sessions.subtask(busy.request(1, 2)) as same:
        assert same is session


def test_an_epoch_longer_than_the_idle_time_is_not_dropped_when_it_ends(
    sessions: Sessions, clock: ManualClock, tmp_path: Path
) -> None:
    host = Host(operator(tmp_path))
    with sessions.subtask(host.request(0, 1)):
        clock.now = 1000.0
    clock.now = 1001.0
    sessions.drop_unused(600)
    assert len(sessions) == 1
    clock.now = 1602.0
    sessions.drop_unused(600)
    assert len(sessions) == 0


def test_a_store_that_is_slow_to_open_does_not_delay_others(
    sessions: Sessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = Host(operator(tmp_path / "slow")), Host(operator(tmp_path / "fast"))
    opening, free = threading.Event(), threading.Event()
    original = sessions_module.StoreSession

    def open_slowly(request: Any, maintenance: Any) -> Any:
        if "/slow/" in request.store_url:
            opening.set()
            assert free.wait(30)
        return original(request, maintenance)

    def use_slow() -> None:
        with sessions.subtask(slow.request(0, 1)):
            pass

    monkeypatch.setattr(sessions_module, "StoreSession", open_slowly)
    thread = threading.Thread(target=use_slow)
    thread.start()
    try:
        assert opening.wait(30)
        with sessions.subtask(fast.request(0, 1)) as session:
            assert session.key_groups
        assert thread.is_alive()
    finally:
        free.set()
        thread.join()
    assert len(sessions) == 2


@pytest.mark.parametrize("run_id", ["run-0", "run-3"])
@pytest.mark.parametrize("max_parallelism", [8, 16])
def test_a_store_that_was_deleted_and_begun_anew_takes_new_runs(
    sessions: Sessions, tmp_path: Path, run_id: str, max_parallelism: int
) -> None:
    host = Host(operator(tmp_path), run_id="run-1")
    with sessions.subtask(host.request(0, 1)) as before:
        before.accept(host.request(0, 1), lambda: None)
    shutil.rmtree(tmp_path / "query")
    anew = Host(operator(tmp_path, max_parallelism=max_parallelism), run_id=run_id)
    with sessions.subtask(anew.request(0, 1)) as session:
        assert session is not before
        assert len(session.key_groups) == max_parallelism
        assert session.accept(anew.request(0, 1), lambda: None).by.run.number == 1
    assert (tmp_path / "query" / "totals" / "store.json").exists()


def test_a_store_that_could_not_be_opened_is_tried_again(
    sessions: Sessions, tmp_path: Path
) -> None:
    folder = tmp_path / "root"
    folder.touch()
    host = Host(operator(folder))
    with pytest.raises(Exception, match="root"), sessions.subtask(host.request(0, 1)):
        pass
    folder.unlink()
    with sessions.subtask(host.request(0, 2)):
        pass
