"""Files that no barrier names yet outlive the orphan sweep, or are counted as lost (I8)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from checkpoint_store.errors import StoreAccessError
from checkpoint_store.files.sign_of_life import SignsOfLife
from checkpoint_store.operators.epoch_files import AttemptFiles
from spark_state.errors import StateHostError
from spark_state.subtasks.epoch_request import BackendSettings
from spark_state.subtasks.maintenance import Maintenance
from tests.support.operators.subtasks import Host, operator
from tests.support.operators.watched_files import watch_files

ROWS = [("a", 1)]
GRACE = 86_400
BACKENDS = [BackendSettings(), BackendSettings(kind="rocksdb")]


@dataclass
class Days:
    """A host whose clock and file times the test moves on."""

    folder: Path
    maintenance: Maintenance = field(init=False)
    host: Host = field(init=False)
    now: float = 0.0

    def open(self, **changes: Any) -> Host:
        self.maintenance = Maintenance(lambda: self.now)
        spec = operator(self.folder, min_epochs_for_snapshot=2, **changes)
        self.host = Host(spec).open(self.maintenance)
        return self.host

    def pass_by(self, seconds: float) -> None:
        """Let time pass, then do the hourly work of the host and of the sweep."""
        self.now += seconds
        for path in self.folder.rglob("epochs/*/*"):
            modified = path.stat().st_mtime - seconds
            os.utime(path, (modified, modified))
        self.show_alive()
        self.host.checkpoints.sweep_orphans(GRACE, time.time())

    def pass_in_steps(self, _: AttemptFiles) -> None:
        """Let more than the grace period pass, with signs of life in between."""
        for _step in range(12):
            self.pass_by(GRACE / 8)

    def show_alive(self) -> None:
        assert self.host.session is not None
        self.host.session.show_alive()
        self.maintenance.signs.submit(self.host.session._store_url, int).result()

    def files(self, *kinds: str) -> list[Path]:
        return [path for kind in kinds for path in self.folder.rglob(f"epochs/*/{kind}-*")]

    def begin_snapshot(self) -> None:
        """Run two epochs, so that a snapshot exists that no barrier names yet."""
        for epoch in range(2):
            self.host.epoch(epoch, ROWS)
            self.host.finish_maintenance()
        assert self.files("snapshot", "database")

    @property
    def failed(self) -> int | None:
        assert self.host.report is not None
        return self.host.report.failed_snapshots

    def restarted(self, epoch: int) -> object:
        """Return the output of an epoch in the next run, in a new host."""
        with Maintenance() as maintenance:
            host = replace(self.host, session=None, run_id="run-2").open(maintenance)
            try:
                return host.epoch(epoch, ROWS)
            finally:
                host.close()


@pytest.fixture
def days(tmp_path: Path) -> Iterator[Days]:
    opened = Days(tmp_path)
    yield opened
    opened.host.close()
    opened.maintenance.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_snapshot_that_waits_for_days_is_kept_from_the_sweep_and_named(
    days: Days, backend: BackendSettings
) -> None:
    host = days.open(backend=backend)
    days.begin_snapshot()
    for _ in range(24):
        days.pass_by(GRACE / 8)
    signs = days.files("alive")
    assert len(signs) == 2
    assert host.epoch(2, ROWS) == {"a": (3, 3)}
    assert host.handles[0].kind == ("snapshot" if backend.kind == "heap" else "database")
    host.epoch(3, ROWS)
    assert days.failed == 0
    assert days.restarted(4) == {"a": (5, 5)}
    days.pass_by(2 * GRACE)
    assert not any(sign.exists() for sign in signs)


def test_a_snapshot_that_is_written_for_days_keeps_its_files(
    days: Days, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch_files(monkeypatch, "snapshot", after=days.pass_in_steps)
    host = days.open()
    days.begin_snapshot()
    assert host.epoch(2, ROWS) == {"a": (3, 3)}
    assert host.handles[0].kind == "snapshot"
    assert days.restarted(3) == {"a": (4, 4)}


def test_an_epoch_pays_no_sign_of_life_for_a_snapshot_that_is_named_soon(days: Days) -> None:
    host = days.open()
    for epoch in range(20):
        host.epoch(epoch, ROWS)
        host.finish_maintenance()
        days.now += GRACE / 100
        days.show_alive()
    assert host.handles[0].kind == "snapshot"
    assert days.files("alive") == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_snapshot_without_signs_of_life_is_counted_and_told_with_duration_and_limit(
    days: Days, caplog: pytest.LogCaptureFixture, backend: BackendSettings
) -> None:
    host = days.open(backend=backend)
    days.begin_snapshot()
    days.now += GRACE / 2 + 60  # the host was stopped for that long
    assert host.epoch(2, ROWS) == {"a": (3, 3)}
    assert {handle.kind for handle in host.handles} == {"changelog"}
    assert days.failed == 1
    assert "needed 43260 s" in caplog.text
    assert "the limit is 43200 s" in caplog.text
    for epoch in range(3, 6):
        host.epoch(epoch, ROWS)
        host.finish_maintenance()
    assert days.failed == 0
    assert host.handles[0].kind != "changelog"


def test_signs_that_the_store_refuses_are_told_and_the_snapshot_is_not_named(
    days: Days, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host = days.open()
    days.begin_snapshot()

    def refuse(_: SignsOfLife) -> None:
        raise StoreAccessError("file://store", "no right")

    monkeypatch.setattr(SignsOfLife, "put", refuse)
    for _ in range(5):
        days.pass_by(GRACE / 8)
    host.epoch(2, ROWS)
    assert "cannot show" in caplog.text
    assert {handle.kind for handle in host.handles} == {"changelog"}
    assert days.failed == 1


def test_a_snapshot_from_before_the_grace_was_lowered_is_not_named(
    days: Days, caplog: pytest.LogCaptureFixture
) -> None:
    host = days.open()
    days.begin_snapshot()
    lower = replace(host.spec.checkpoints, orphan_grace_seconds=60)
    host.spec = replace(host.spec, checkpoints=lower)
    host.epoch(2, ROWS)
    assert {handle.kind for handle in host.handles} == {"changelog"}
    assert "lowered from 86400 to 60" in caplog.text


def test_an_epoch_whose_own_files_may_be_gone_publishes_no_barrier(
    days: Days, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = days.open()
    host.epoch(0, ROWS)

    def pass_unseen(_: AttemptFiles) -> None:
        days.now += GRACE

    with monkeypatch.context() as patch:
        watch_files(patch, after=pass_unseen)
        with pytest.raises(StateHostError, match="epoch 1 is not published"):
            host.epoch(1, ROWS)
    assert host.epoch(1, ROWS, attempt=3) == {"a": (2, 2)}


def test_an_epoch_that_writes_for_days_keeps_its_files(
    days: Days, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = days.open()
    with monkeypatch.context() as patch:
        watch_files(patch, after=days.pass_in_steps)
        assert host.epoch(0, ROWS) == {"a": (1, 1)}
    assert days.restarted(1) == {"a": (2, 2)}
