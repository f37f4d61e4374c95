"""When a subtask's snapshots are written, and when they take the place of changelogs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpoint_store.completed_checkpoint_store import CompletedCheckpointStore
from tests.support.subtasks import OpenHost, operator

ROWS_A = [("a", 1)]


def test_a_snapshot_replaces_the_changelogs_it_holds(open_host: OpenHost, tmp_path: Path) -> None:
    host = open_host()
    for epoch in range(25):
        host.epoch(epoch, ROWS_A)
        host.session._maintenance.submit(lambda: None).result()  # type: ignore[union-attr]
    snapshots = list(tmp_path.glob("query/totals/epochs/*/snapshot-*"))
    assert len(snapshots) == 2
    resident = host.session._resident  # type: ignore[union-attr]
    assert resident is not None
    assert resident.handles[0].kind == "snapshot"
    assert len(resident.handles) < 11
    assert open_host(run_id="run-2").epoch(25, ROWS_A) == {"a": (26, 26)}


def test_chains_stay_short_when_every_epoch_runs_in_a_host_of_its_own(
    open_host: OpenHost, tmp_path: Path
) -> None:
    written: list[int] = []
    for epoch in range(40):
        host = open_host(run_id=f"run-{epoch}")
        assert host.epoch(epoch, ROWS_A) == {"a": (epoch + 1, epoch + 1)}
        resident = host.session._resident  # type: ignore[union-attr]
        assert resident is not None
        assert len(resident.handles) <= 11
        written.append(len(list(tmp_path.glob("query/totals/epochs/*/snapshot-*"))))
    assert 3 <= written[-1] <= 8  # one or two for ten epochs


def test_a_snapshot_taken_at_a_restore_does_not_keep_the_epoch_from_running_again(
    open_host: OpenHost,
) -> None:
    settings = replace(operator(Path()).checkpoints, min_epochs_for_snapshot=2)
    old = open_host(checkpoints=settings)
    for epoch in range(3):
        old.epoch(epoch, ROWS_A)
    host = open_host(checkpoints=settings, run_id="run-2")
    for attempt in (5, 6):
        assert host.epoch(3, ROWS_A, attempt=attempt) == {"a": (4, 4)}
    assert open_host(run_id="run-3").epoch(4, ROWS_A) == {"a": (5, 5)}


def test_a_snapshot_at_a_restore_that_the_sweep_may_have_taken_is_not_named(
    open_host: OpenHost,
) -> None:
    settings = replace(
        operator(Path()).checkpoints, min_epochs_for_snapshot=2, orphan_grace_seconds=0
    )
    for epoch in range(6):
        host = open_host(run_id=f"run-{epoch}", checkpoints=settings)
        host.epoch(epoch, ROWS_A)
    resident = host.session._resident  # type: ignore[union-attr]
    assert resident is not None
    assert {handle.kind for handle in resident.handles} == {"changelog"}


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
        host.session._maintenance.submit(lambda: None).result()  # type: ignore[union-attr]
    resident = host.session._resident  # type: ignore[union-attr]
    assert resident is not None
    assert {handle.kind for handle in resident.handles} == {"changelog"}


def test_a_snapshot_of_an_undone_epoch_is_not_used(open_host: OpenHost) -> None:
    host = open_host(checkpoints=replace(operator(Path()).checkpoints, min_epochs_for_snapshot=2))
    host.epoch(0, ROWS_A)
    host.epoch(1, [("a", 1000)], attempt=2)
    assert host.session is not None
    assert host.session._snapshot is not None
    host.session._maintenance.submit(lambda: None).result()
    assert host.session._snapshot.done()
    assert host.epoch(1, ROWS_A, attempt=3) == {"a": (2, 2)}
    host.epoch(2, ROWS_A, attempt=4)
    assert open_host(run_id="run-2").epoch(3, ROWS_A) == {"a": (4, 4)}
