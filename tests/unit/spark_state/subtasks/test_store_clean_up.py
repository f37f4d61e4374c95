"""Refused clean-up of an operator's store is logged once and tried less and less often."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from checkpoint_store.errors import StoreAccessError
from checkpoint_store.objects.object_info import UNPUBLISHED
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from spark_state.subtasks import store_session
from tests.support.operators.subtasks import Host, OpenHost
from tests.support.stores.fake_object_store import RefusingObjectStore

ROWS_A = [("a", 1)]


class Refusals:
    """The deletions that the store refuses; `deleted` is the prefix of the refused names."""

    def __init__(self) -> None:
        self.deleted = ""
        self.epoch = 0
        self.epochs: list[int] = []

    def __call__(self, operation: str, name: str) -> Exception | None:
        if operation != "delete" or not self.deleted or not name.startswith(self.deleted):
            return None
        self.epochs.append(self.epoch)
        return StoreAccessError("store", "no right to delete")


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> Refusals:
    refused = Refusals()

    def opened(url: str, storage_options: Mapping[str, Any] | None = None) -> ObjectStore:
        return RefusingObjectStore(open_object_store(url, storage_options), refused)

    monkeypatch.setattr(store_session, "open_object_store", opened)
    monkeypatch.setattr(store_session, "_SECONDS_BETWEEN_SWEEPS", 0.0)
    return refused


def run(host: Host, refusals: Refusals, epochs: range) -> None:
    for epoch in epochs:
        refusals.epoch = epoch
        host.epoch(epoch, ROWS_A)
        host.finish_maintenance()


def orphan_in(folder: Path) -> Path:
    """Make an old file that its writer never published."""
    orphan = folder / "query/totals" / UNPUBLISHED / "0123"
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"begun")
    os.utime(orphan, (0, 0))
    return orphan


@pytest.fixture
def host(open_host: OpenHost, refusals: Refusals) -> Host:
    assert not refusals.deleted
    return open_host(min_epochs_to_retain=2)


@pytest.mark.long
def test_retention_that_is_refused_is_told_once_and_tried_less_and_less_often(
    host: Host, refusals: Refusals, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    refusals.deleted = "manifests/"
    run(host, refusals, range(95))
    assert refusals.epochs == [10, 20, 40, 80]
    (told,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert told.exc_info is None
    assert "deleting expired epochs of" in told.getMessage()
    assert "no right to delete" in told.getMessage()
    assert "must be allowed to list and to delete" in told.getMessage()
    refusals.deleted = ""
    run(host, refusals, range(95, 165))
    assert "works again, after 4 failures" in caplog.text
    assert len(list(tmp_path.glob("query/totals/manifests/*"))) <= 12


def test_orphans_go_while_retention_is_refused(
    host: Host, refusals: Refusals, tmp_path: Path
) -> None:
    refusals.deleted = "manifests/"
    run(host, refusals, range(15))
    orphan = orphan_in(tmp_path)
    run(host, refusals, range(15, 25))
    assert refusals.epochs == [10, 20]
    assert not orphan.exists()


def test_retention_goes_on_while_the_sweep_is_refused(
    host: Host, refusals: Refusals, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(host, refusals, range(1))
    refusals.deleted = f"{UNPUBLISHED}/"
    orphan_in(tmp_path)
    run(host, refusals, range(1, 45))
    assert refusals.epochs == [10, 20, 40]
    assert caplog.text.count("deleting orphans of") == 1
    assert len(list(tmp_path.glob("query/totals/manifests/*"))) <= 12


def test_what_clocks_of_killed_runs_left_below_the_root_goes(
    host: Host, refusals: Refusals, tmp_path: Path
) -> None:
    markers = [tmp_path / "_clocks" / name for name in ("a" * 32, "b" * 32, "note.txt")]
    markers[0].parent.mkdir()
    for marker in markers:
        marker.write_text("query")
    for marker in markers[::2]:
        os.utime(marker, (0, 0))
    run(host, refusals, range(1))
    assert [marker.exists() for marker in markers] == [False, True, True]
