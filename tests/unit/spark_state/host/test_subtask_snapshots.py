"""When a subtask's snapshots are written, and when they take the place of changelogs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpoint_store.completed_checkpoint_store import CompletedCheckpointStore
from spark_state.host.maintenance import Maintenance
from tests.support.subtasks import Host, OpenHost, operator

ROWS_A = [("a", 1)]


def test_a_snapshot_replaces_the_changelogs_it_holds(open_host: OpenHost, tmp_path: Path) -> None:
    host = open_host()
    for epoch in range(25):
        host.epoch(epoch, ROWS_A)
        host.finish_maintenance()
    snapshots = list(tmp_path.glob("query/totals/epochs/*/snapshot-*"))
    assert len(snapshots) == 2
    assert host.handles[0].kind == "snapshot"
    assert len(host.handles) < 11
    assert open_host(run_id="run-2").epoch(25, ROWS_A) == {"a": (26, 26)}


def snapshots_in(folder: Path) -> int:
    return len(list(folder.glob("query/totals/epochs/*/snapshot-*")))


def test_chains_stay_short_when_every_epoch_runs_in_a_host_of_its_own(
    open_host: OpenHost, tmp_path: Path
) -> None:
    written: list[int] = []
    for epoch in range(70):
        host = open_host(run_id=f"run-{epoch}")
        assert host.epoch(epoch, ROWS_A) == {"a": (epoch + 1, epoch + 1)}
        assert len(host.handles) <= 21
        written.append(snapshots_in(tmp_path))
    assert written[-1] == 3, "one for twenty epochs, and none is written for nothing"


class SlowSnapshots:
    """Snapshots are written only once they are let go; `begun` counts those that want to be."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Semaphore(0)
        self.let_go = threading.Event()
        original = CompletedCheckpointStore.write_state

        def write_state(store: Any, kind: Any, table: Any, writer: Any) -> Any:
            if kind == "snapshot":
                self.begun.release()
                assert self.let_go.wait(60)
            return original(store, kind, table, writer)

        monkeypatch.setattr(CompletedCheckpointStore, "write_state", write_state)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, maintenance: Maintenance) -> Iterator[SlowSnapshots]:
    snapshots = SlowSnapshots(monkeypatch)
    yield snapshots
    snapshots.let_go.set()


def test_an_epoch_after_a_restore_does_not_wait_for_a_snapshot_that_is_due(
    open_host: OpenHost, slow: SlowSnapshots
) -> None:
    for epoch in range(19):
        open_host(run_id=f"run-{epoch}").epoch(epoch, ROWS_A)
    host = open_host(run_id="run-19")
    for epoch in range(19, 40):
        assert host.epoch(epoch, ROWS_A) == {"a": (epoch + 1, epoch + 1)}
    assert slow.begun.acquire(timeout=60)
    slow.let_go.set()
    host.finish_maintenance()
    host.epoch(40, ROWS_A)
    assert host.handles[0].kind == "snapshot"


def test_the_first_epoch_after_a_restore_waits_for_a_snapshot_that_is_overdue(
    open_host: OpenHost, slow: SlowSnapshots
) -> None:
    for epoch in range(20):
        open_host(run_id=f"run-{epoch}").epoch(epoch, ROWS_A)
    host = open_host(run_id="run-20")
    epoch = threading.Thread(target=host.epoch, args=(20, ROWS_A))
    epoch.start()
    assert slow.begun.acquire(timeout=60)
    epoch.join(0.5)
    assert epoch.is_alive()
    slow.let_go.set()
    epoch.join()
    assert [handle.kind for handle in host.handles] == ["snapshot", "changelog"]


def test_a_task_that_is_gone_does_not_wait_for_an_overdue_snapshot(
    open_host: OpenHost, slow: SlowSnapshots
) -> None:
    for epoch in range(20):
        open_host(run_id=f"run-{epoch}").epoch(epoch, ROWS_A)
    host = open_host(run_id="run-20")

    def gone() -> None:
        if slow.begun.acquire(blocking=False):
            raise InterruptedError("the task is gone")

    with pytest.raises(InterruptedError):
        host.epoch(20, ROWS_A, check=gone)
    slow.let_go.set()
    assert host.epoch(20, ROWS_A, attempt=30) == {"a": (21, 21)}
    assert host.handles[0].kind == "snapshot"


def test_a_large_snapshot_delays_neither_clean_up_nor_other_stores(
    tmp_path: Path, maintenance: Maintenance, slow: SlowSnapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    retained: list[str] = []
    monkeypatch.setattr(
        CompletedCheckpointStore,
        "retain",
        lambda store, min_epochs: retained.append(store._store.url) or 0,
    )
    large, small = (
        Host(operator(tmp_path / name)).open(maintenance) for name in ("large", "small")
    )
    for epoch in range(21):
        large.epoch(epoch, ROWS_A)
    assert slow.begun.acquire(timeout=60)
    assert large.session is not None
    maintenance.housekeeping.submit(large.session._store.url, int).result(timeout=60)
    assert retained == [large.session._store.url] * 3
    for epoch in range(21):
        small.epoch(epoch, ROWS_A)
    assert slow.begun.acquire(timeout=60), "the other store's snapshot begins, too"
    slow.let_go.set()
    for host in (large, small):
        host.finish_maintenance()
        host.epoch(21, ROWS_A)
        assert host.handles[0].kind == "snapshot"


def test_a_snapshot_taken_at_a_restore_does_not_keep_the_epoch_from_running_again(
    open_host: OpenHost,
) -> None:
    settings = replace(operator(Path()).checkpoints, min_epochs_for_snapshot=2)
    for epoch in range(4):
        open_host(checkpoints=settings, run_id=f"run-{epoch}").epoch(epoch, ROWS_A)
    host = open_host(checkpoints=settings, run_id="run-4")
    for attempt in (5, 6):
        assert host.epoch(4, ROWS_A, attempt=attempt) == {"a": (5, 5)}
        assert [handle.kind for handle in host.handles] == ["snapshot", "changelog"]
    assert open_host(run_id="run-5").epoch(5, ROWS_A) == {"a": (6, 6)}


def test_a_snapshot_at_a_restore_that_the_sweep_may_have_taken_is_not_named(
    open_host: OpenHost,
) -> None:
    settings = replace(
        operator(Path()).checkpoints, min_epochs_for_snapshot=2, orphan_grace_seconds=0
    )
    for epoch in range(6):
        host = open_host(run_id=f"run-{epoch}", checkpoints=settings)
        host.epoch(epoch, ROWS_A)
    assert {handle.kind for handle in host.handles} == {"changelog"}


def test_a_snapshot_that_cannot_be_written_at_a_restore_does_not_stop_the_query(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = CompletedCheckpointStore.write_state

    def write_state(self: Any, kind: str, table: Any, writer: Any) -> Any:
        if kind == "snapshot":
            raise OSError(28, "No space left on device")
        return original(self, kind, table, writer)  # type: ignore[arg-type]

    monkeypatch.setattr(CompletedCheckpointStore, "write_state", write_state)
    settings = replace(operator(Path()).checkpoints, min_epochs_for_snapshot=2)
    for epoch in range(5):
        host = open_host(run_id=f"run-{epoch}", checkpoints=settings)
        assert host.epoch(epoch, ROWS_A) == {"a": (epoch + 1, epoch + 1)}


def test_a_snapshot_that_the_sweep_may_have_taken_is_not_named(open_host: OpenHost) -> None:
    settings = replace(operator(Path()).checkpoints, orphan_grace_seconds=0)
    host = open_host(checkpoints=settings)
    for epoch in range(15):
        host.epoch(epoch, ROWS_A)
        host.finish_maintenance()
    assert {handle.kind for handle in host.handles} == {"changelog"}


def test_a_snapshot_of_an_undone_epoch_is_not_used(open_host: OpenHost) -> None:
    host = open_host(checkpoints=replace(operator(Path()).checkpoints, min_epochs_for_snapshot=2))
    host.epoch(0, ROWS_A)
    host.epoch(1, [("a", 1000)], attempt=2)
    assert host.session is not None
    assert host.session._snapshot is not None
    host.finish_maintenance()
    assert host.session._snapshot.done()
    assert host.epoch(1, ROWS_A, attempt=3) == {"a": (2, 2)}
    host.epoch(2, ROWS_A, attempt=4)
    assert open_host(run_id="run-2").epoch(3, ROWS_A) == {"a": (4, 4)}
