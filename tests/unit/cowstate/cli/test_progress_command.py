"""`cowstate progress` prints the progress of every operator, or says that no store exists."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from checkpoint_store import OperatorProgress, SubtaskProgress
from checkpoint_store.objects.local_object_store import LocalObjectStore
from cowstate.cli.command_line import main
from cowstate.cli.progress_report import as_text
from tests.support.operators.counts_operator import CountsOperator

NUMBERS = {
    "rows_total": 65,
    "rows_updated": 1_100,
    "rows_removed": 3,
    "rows_in": 12_000,
    "rows_out": 2,
    "late_rows": None,
    "memory_bytes": 3_000_000,
    "timers": 4,
    "next_timer_ms": 90_000,
    "watermark_ms": 60_000,
    "restore_ms": 5,
    "process_ms": 6,
    "write_ms": 7,
    "last_publish_ms": 8,
    "written_bytes": 900,
    "states_deleted": 1,
    "failed_snapshots": 0,
}
PROGRESS = OperatorProgress(
    name="totals",
    url="file:///store",
    epoch=4,
    committed_ms=30_000,
    run_id="run",
    parallelism=2,
    **NUMBERS,  # type: ignore[arg-type]
)


def test_the_table_has_a_line_for_each_epoch_and_subtask() -> None:
    of_subtask = SubtaskProgress(subtask=1, **NUMBERS)  # type: ignore[arg-type]
    later = replace(PROGRESS, epoch=5, memory_bytes=None, subtasks=(of_subtask,))
    title, headings, first, second, subtask, timer = as_text([PROGRESS, later]).split("\n")
    assert title == "totals (2 subtasks)  file:///store"
    assert headings.split()[:4] == ["epoch", "committed", "in", "out"]
    shown = " ".join(first.split())
    assert shown == (
        "4 1970-01-01 00:00:30 12,000 2 - 65 1,100 3 4 3.0 MB 900 bytes 5 6 7 1970-01-01 00:01:00"
    )
    assert second.split()[0] == "5"
    assert "2.9" not in second
    assert subtask.split()[:2] == ["subtask", "1"]
    assert timer == "next timer: 1970-01-01 00:01:30"
    assert len({len(line) for line in (headings, first, second, subtask)}) == 1


def test_each_operator_has_a_table_of_its_own() -> None:
    other = replace(PROGRESS, name="rules", url="file:///other", parallelism=1)
    first, second = as_text([PROGRESS, other]).split("\n\n")
    assert first.startswith("totals (2 subtasks)")
    assert second.startswith("rules (1 subtask)")


def test_the_command_reads_the_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    operator = CountsOperator(LocalObjectStore(tmp_path / "counts"))
    for epoch in range(3):
        operator.run_epoch(epoch, {epoch: 1})
    asked = ["progress", str(tmp_path), "--epochs", "2", "--subtasks", "--json"]
    assert main(asked) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(epoch["name"], epoch["epoch"], len(epoch["subtasks"])) for epoch in told] == [
        ("counts", 1, 2),
        ("counts", 2, 2),
    ]
    assert main(["progress", str(tmp_path / "counts")]) == 0
    assert "counts (2 subtasks)" in capsys.readouterr().out
