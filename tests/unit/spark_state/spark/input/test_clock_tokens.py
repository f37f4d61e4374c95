"""Tasks tell a clock the query through objects, and old objects of dead clocks are deleted."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from checkpoint_store.epochs.completed_checkpoint import SubtaskTime
from checkpoint_store.errors import StoreAccessError
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.objects.object_info import UNPUBLISHED
from spark_state.spark.input.clock_source import ClockFiles, ClockSettings
from spark_state.spark.session.store_options import REDACTION_OF_SPARK
from tests.support.operators.lone_subtasks import LoneSubtask, Operator

HOUR = 3_600


def clock(root: Path) -> ClockFiles:
    return ClockFiles(ClockSettings(str(root), "counts", 2, None))


def test_options_of_stores_reach_the_process_of_the_clock_and_are_not_shown() -> None:
    settings = ClockSettings(
        "s3://bucket", "counts", 2, "min", store_options={"secret": "hunter2", "anon": False}
    )
    assert ClockSettings.of_options(settings.options()) == settings
    (shown,) = (name for name, value in settings.options().items() if "hunter2" in value)
    assert re.search(REDACTION_OF_SPARK, shown)
    assert "hunter2" not in repr(settings)


def left(root: Path, name: str, age_seconds: float) -> Path:
    """Make an object of a clock, `age_seconds` old."""
    path = root / "_clocks" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("query")
    changed = time.time() - age_seconds
    os.utime(path, (changed, changed))
    return path


def test_a_clock_deletes_what_it_has_read_and_then_what_dead_clocks_left(tmp_path: Path) -> None:
    reading = clock(tmp_path)
    old, begun = left(tmp_path, "a" * 32, HOUR + 60), left(tmp_path, f"{UNPUBLISHED}/1", HOUR + 60)
    new = left(tmp_path, "b" * 32, HOUR - 600)
    assert reading.query_id() is None
    own = left(tmp_path, reading.token, 0)
    assert old.exists()
    assert reading.query_id() == "query"
    assert [path.exists() for path in (own, old, begun, new)] == [False, False, False, True]


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("delete", StoreAccessError("file:///store", "permission denied")),
        ("list", OSError("the network is down")),
    ],
)
def test_a_clock_that_cannot_delete_or_sweep_does_not_lose_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, error: Exception
) -> None:
    reading = clock(tmp_path)
    left(tmp_path, reading.token, 0)
    monkeypatch.setattr(LocalObjectStore, method, Mock(side_effect=error))
    assert reading.query_id() == "query"


def test_a_clock_goes_by_the_times_of_all_runs_that_may_count(tmp_path: Path) -> None:
    """Two drivers have run an epoch, and a timer of either driver may be due."""
    store = LocalObjectStore(tmp_path / "query" / "counts")
    before = LoneSubtask(store, Operator("run-a", 1), 0)
    before.publish(0, None, {0: 0}, time=SubtaskTime(0, (), 10, None))
    before.complete()
    reading = clock(tmp_path)
    assert [time.next_timer_ms for time in reading.newest_times("query")] == [10]
    base = before.base(1)
    drivers = [before, LoneSubtask(store, Operator("run-b", 1), 0)]
    for driver, timer_ms in zip(drivers, (20, 30), strict=True):
        driver.publish(1, base, {0: timer_ms}, time=SubtaskTime(1, (), timer_ms, None))
        driver.complete()
    assert {time.next_timer_ms for time in reading.newest_times("query")} == {20, 30}
