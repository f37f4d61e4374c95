"""Snapshots of a subtask are written in time and replace changelogs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.operators.epoch_files import AttemptFiles
from spark_state.checkpointing import snapshot_policy
from spark_state.errors import StateHostError
from spark_state.rocksdb.database import Database, DatabaseCheckpoint
from spark_state.subtasks.epoch_request import BackendSettings
from spark_state.subtasks.maintenance import Maintenance
from tests.support.operators.subtasks import Host, OpenHost, operator
from tests.support.operators.watched_files import watch_files

ROWS_A = [("a", 1)]


def run(host: Host, epochs: range) -> None:
    """Run epochs of one key, which has a row in each epoch from 0, with their maintenance."""
    for epoch in epochs:
        assert host.epoch(epoch, ROWS_A) == {"a": (epoch + 1, epoch + 1)}
        host.finish_maintenance()


def test_a_snapshot_replaces_the_changelogs_it_holds(open_host: OpenHost, tmp_path: Path) -> None:
    host = open_host()
    run(host, range(25))
    snapshots = list(tmp_path.glob("query/totals/epochs/*/snapshot-*"))
    assert len(snapshots) == 2
    assert host.handles[0].kind == "snapshot"
    assert len(host.handles) < 11
    assert open_host(run_id="run-2").epoch(25, ROWS_A) == {"a": (26, 26)}


def snapshots_in(folder: Path) -> int:
    kinds = ("snapshot", "database")
    return sum(len([*folder.glob(f"query/totals/epochs/*/{kind}-*")]) for kind in kinds)


@pytest.mark.long
def test_chains_stay_short_when_every_epoch_runs_in_a_host_of_its_own(
    open_host: OpenHost, tmp_path: Path
) -> None:
    written: list[int] = []
    for epoch in range(70):
        host = open_host(run_id=f"run-{epoch}")
        assert host.epoch(epoch, ROWS_A) == {"a": (epoch + 1, epoch + 1)}
        assert len(host.handles) <= 11
        written.append(snapshots_in(tmp_path))
    assert written[-1] == 6, "one for ten epochs, and none is written for nothing"


@pytest.fixture
def no_state_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write even a state of a few keys in parts."""
    monkeypatch.setattr(snapshot_policy, "FEW_ENTRIES", 0)


MANY_KEYS = [f"key {number}" for number in range(400)]


@pytest.mark.long
def test_short_runs_replace_a_large_state_in_parts(
    open_host: OpenHost, tmp_path: Path, no_state_is_small: None
) -> None:
    replayed, files, waits = [], [], []
    expected = dict.fromkeys(MANY_KEYS, 0)
    for epoch in range(40):
        host = open_host(min_epochs_for_snapshot=2, run_id=f"run-{epoch}")
        changed = MANY_KEYS if epoch == 0 else MANY_KEYS[epoch % 10 :: 10]
        expected |= {key: expected[key] + epoch for key in changed}
        totals = host.epoch(epoch, [(key, epoch) for key in changed])
        assert {key: total for key, (_, total) in totals.items()} == {
            key: expected[key] for key in changed
        }
        chain = host.handles
        changelogs = [handle for handle in chain if handle.kind == "changelog"]
        replayed.append(sum(h.rows * len(h.key_groups) / 8 for h in changelogs[:-1]))
        files.append(len({handle.name for handle in chain}))
        waits += [h.rows for h in chain if h.kind == "snapshot" and h.epoch == epoch]
    assert max(replayed[1:]) < 2.5 * len(MANY_KEYS), "the first changelog puts all of them"
    assert max(files) < 40
    assert len(waits) > 5
    assert max(waits) <= len(MANY_KEYS) / 4, "no epoch waits for more"
    with_all = open_host(run_id="last").epoch(40, [(key, 0) for key in MANY_KEYS])
    assert {key: total for key, (_, total) in with_all.items()} == expected


@dataclass
class SlowWrites:
    """A patch that holds back snapshots until `let_go` is set: those of slow stores or subtasks.
    `begun` counts the waiting writes."""

    slow: Callable[[str, int], bool] = lambda _url, _subtask: True
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    let_go: threading.Event = field(default_factory=threading.Event)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> SlowWrites:
        watch_files(monkeypatch, "snapshot", before=self._wait)
        return self

    def _wait(self, files: AttemptFiles) -> None:
        if self.slow(files._store.url, files.attempt.subtask):
            self.begun.release()
            assert self.let_go.wait(120)

    def not_waited_for(self, epoch: Callable[[], object]) -> None:
        """Run an epoch, and check that the epoch ends before `let_go` is set."""
        thread = threading.Thread(target=epoch)
        thread.start()
        thread.join(60)
        has_ended = not thread.is_alive()
        self.let_go.set()
        thread.join()
        assert has_ended


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, maintenance: Maintenance) -> Iterator[SlowWrites]:
    writes = SlowWrites().install(monkeypatch)
    yield writes
    writes.let_go.set()


def test_no_epoch_waits_for_the_snapshot_of_a_run_that_goes_on(
    open_host: OpenHost, slow: SlowWrites
) -> None:
    for epoch in range(9):
        open_host(run_id=f"run-{epoch}").epoch(epoch, ROWS_A)
    host = open_host(run_id="run-9")
    for epoch in range(9, 30):
        assert host.epoch(epoch, ROWS_A) == {"a": (epoch + 1, epoch + 1)}
    assert slow.begun.acquire(timeout=60)
    slow.let_go.set()
    host.finish_maintenance()
    host.epoch(30, ROWS_A)
    assert host.handles[0].kind == "snapshot"


def short_runs(open_host: OpenHost, epochs: int) -> None:
    """Run each epoch in a new run, until the next epoch makes a part due."""
    for epoch in range(epochs):
        open_host(run_id=f"run-{epoch}").epoch(epoch, ROWS_A)


def test_the_first_epoch_after_a_restore_waits_for_a_part_that_is_due(
    open_host: OpenHost, slow: SlowWrites
) -> None:
    short_runs(open_host, 10)
    host = open_host(run_id="run-10")
    epoch = threading.Thread(target=host.epoch, args=(10, ROWS_A))
    epoch.start()
    assert slow.begun.acquire(timeout=60)
    epoch.join(0.5)
    assert epoch.is_alive()
    slow.let_go.set()
    epoch.join()
    assert [handle.kind for handle in host.handles] == ["snapshot", "changelog"]


def test_a_task_that_is_gone_does_not_wait_for_a_part(
    open_host: OpenHost, slow: SlowWrites
) -> None:
    short_runs(open_host, 10)
    host = open_host(run_id="run-10")

    def gone() -> None:
        if slow.begun.acquire(blocking=False):
            raise InterruptedError("the task is gone")

    with pytest.raises(InterruptedError):
        host.epoch(10, ROWS_A, check=gone)
    slow.let_go.set()
    assert host.epoch(10, ROWS_A, attempt=30) == {"a": (11, 11)}
    assert host.handles[0].kind == "snapshot"


def test_a_part_does_not_wait_for_the_snapshots_of_other_stores(
    tmp_path: Path, maintenance: Maintenance, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = SlowWrites(lambda url, _subtask: "large" in url).install(monkeypatch)
    for name in ("large-1", "large-2"):
        large = Host(operator(tmp_path / name)).open(maintenance)
        for epoch in range(10):
            large.epoch(epoch, ROWS_A)
        assert writes.begun.acquire(timeout=60)
    for epoch in range(10):
        host = Host(operator(tmp_path / "small"), run_id=f"run-{epoch}").open(maintenance)
        host.epoch(epoch, ROWS_A)
    last = Host(operator(tmp_path / "small"), run_id="run-10").open(maintenance)
    writes.not_waited_for(lambda: last.epoch(10, ROWS_A))
    assert [handle.kind for handle in last.handles] == ["snapshot", "changelog"]


def test_a_part_does_not_wait_for_those_of_other_subtasks(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1), ("f", 1)]
    for epoch in range(10):
        for subtask in (0, 1):
            host = open_host(parallelism=2, subtask=subtask, run_id=f"run-{epoch}")
            host.epoch(epoch, both)
    writes = SlowWrites(lambda _url, subtask: subtask == 0).install(monkeypatch)
    first, second = (
        open_host(parallelism=2, subtask=subtask, run_id="run-10") for subtask in (0, 1)
    )
    waiting = threading.Thread(target=first.epoch, args=(10, both))
    waiting.start()
    assert writes.begun.acquire(timeout=60)
    writes.not_waited_for(lambda: second.epoch(10, both))
    waiting.join()
    for host in (first, second):
        assert [handle.kind for handle in host.handles] == ["snapshot", "changelog"]


def test_a_subtask_whose_run_goes_on_elsewhere_for_a_while_waits_for_no_part(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The subtask names a snapshot that is written in the background."""
    home, elsewhere = open_host(), open_host()
    home.epoch(0, ROWS_A)
    run(elsewhere, range(1, 25))
    assert elsewhere.handles[0].kind == "snapshot"
    for epoch in range(25, 40):
        monkeypatch.setattr(elsewhere.session, "_published", None)
        elsewhere.epoch(epoch, ROWS_A)
    SlowWrites().install(monkeypatch).not_waited_for(lambda: home.epoch(40, ROWS_A))


def test_a_large_snapshot_delays_neither_clean_up_nor_other_stores(
    tmp_path: Path, maintenance: Maintenance, slow: SlowWrites, monkeypatch: pytest.MonkeyPatch
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
        assert large.session is not None
        after_clean_up = maintenance.housekeeping.submit(large.session._store.url, int)
        after_clean_up.result(timeout=60)
    assert slow.begun.acquire(timeout=60)
    assert retained == [large.session._store.url] * 3
    for epoch in range(21):
        small.epoch(epoch, ROWS_A)
    assert slow.begun.acquire(timeout=60), "the other store's snapshot begins, too"
    slow.let_go.set()
    for host in (large, small):
        host.finish_maintenance()
        host.epoch(21, ROWS_A)
        assert host.handles[0].kind == "snapshot"


def test_a_part_does_not_keep_its_epoch_from_running_again(open_host: OpenHost) -> None:
    short_runs(open_host, 10)
    host = open_host(run_id="run-10")
    for attempt in (11, 12):
        assert host.epoch(10, ROWS_A, attempt=attempt) == {"a": (11, 11)}
        assert [handle.kind for handle in host.handles] == ["snapshot", "changelog"]
    assert open_host(run_id="run-11").epoch(11, ROWS_A) == {"a": (12, 12)}


def test_a_part_that_cannot_be_written_does_not_stop_the_query(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: AttemptFiles) -> None:
        raise OSError(28, "No space left on device")

    watch_files(monkeypatch, "snapshot", before=refuse)
    for epoch in range(5):
        host = open_host(run_id=f"run-{epoch}", min_epochs_for_snapshot=2)
        assert host.epoch(epoch, ROWS_A) == {"a": (epoch + 1, epoch + 1)}


@pytest.mark.parametrize("kind", ["heap", "rocksdb"])
def test_a_snapshot_of_an_undone_epoch_is_not_used(open_host: OpenHost, kind: Any) -> None:
    backend = BackendSettings(kind=kind)
    host = open_host(min_epochs_for_snapshot=2, backend=backend)
    host.epoch(0, ROWS_A)
    host.epoch(1, [("a", 1000)], attempt=2)
    assert host.session is not None
    assert host.session.snapshots._pending is not None
    host.finish_maintenance()
    assert host.session.snapshots._pending.done()
    assert host.epoch(1, ROWS_A, attempt=3) == {"a": (2, 2)}
    host.epoch(2, ROWS_A, attempt=4)
    assert open_host(run_id="run-2", backend=backend).epoch(3, ROWS_A) == {"a": (4, 4)}


def test_a_snapshot_that_cannot_be_taken_does_not_stop_the_query(
    open_host: OpenHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = open_host(backend=BackendSettings(kind="rocksdb"))

    def fail(_: Database) -> DatabaseCheckpoint:
        raise StateHostError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Database, "checkpoint", fail)
        run(host, range(12))
        again = open_host(run_id="run-2", backend=BackendSettings(kind="rocksdb"))
        assert again.epoch(12, ROWS_A) == {"a": (13, 13)}
    assert snapshots_in(tmp_path) == 0
    run(again, range(13, 26))
    assert snapshots_in(tmp_path) > 0


@pytest.mark.parametrize(
    "backend", [BackendSettings(), BackendSettings(kind="rocksdb", incremental=False)]
)
def test_a_snapshot_has_only_key_groups_that_changed_enough(
    open_host: OpenHost, no_state_is_small: None, backend: BackendSettings
) -> None:
    host, keys = open_host(max_parallelism=64, backend=backend), MANY_KEYS[:100]
    expected = dict.fromkeys(keys, 0)
    for epoch in range(60):
        changed = keys if epoch == 0 else keys[:4]
        expected |= {key: expected[key] + epoch for key in changed}
        host.epoch(epoch, [(key, epoch) for key in changed])
        host.finish_maintenance()
    snapshots = [handle for handle in host.handles if handle.kind == "snapshot"]
    assert snapshots
    assert max(handle.rows for handle in snapshots) < len(keys) / 2
    assert host.handles[0].epoch == 0, "the others are in the first changelog"
    assert len({handle.name for handle in host.handles}) < 50
    last = open_host(run_id="last", max_parallelism=64, backend=backend)
    with_all = last.epoch(60, [(key, 0) for key in keys])
    assert {key: total for key, (_, total) in with_all.items()} == expected


def test_a_failing_snapshot_is_tried_again_and_reported(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host = open_host(min_epochs_for_snapshot=2)
    tried: list[int] = []

    def refuse(files: AttemptFiles) -> None:
        tried.append(files.attempt.epoch)
        raise OSError(122, "the quota is used up")

    def told() -> int | None:
        assert host.report is not None
        return host.report.failed_snapshots

    failed = []
    with monkeypatch.context() as patch:
        watch_files(patch, "snapshot", before=refuse)
        for epoch in range(20):
            run(host, range(epoch, epoch + 1))
            failed.append(told())
    assert tried == [1, 2, 4, 8, 16], "after twice as many epochs each time"
    assert failed[:2] == [0, 0]
    assert failed[-1] == 5
    assert "the quota is used up" in caplog.text
    run(host, range(20, 40))
    assert told() == 0
    assert host.handles[0].kind == "snapshot"
