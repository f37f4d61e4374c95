"""The flights job shows the progress that Spark reports."""

from __future__ import annotations

from typing import Any

import pytest
from tqdm import tqdm

from cowstate.demo.job import EpochProgress


def reported(epoch: int, rows: int) -> Any:
    return {"batchId": epoch, "numInputRows": rows, "processedRowsPerSecond": 7.0}


@pytest.mark.parametrize(
    ("reports", "first_epoch", "epochs_done"),
    [
        ([], None, 0),
        ([None, reported(0, rows=0)], None, 0),
        ([reported(0, rows=5), reported(1, rows=5)], 0, 2),
        ([reported(4, rows=5), reported(6, rows=5)], 4, 7),
        ([reported(0, rows=5), reported(1, rows=5), reported(2, rows=0)], 0, 2),
        ([reported(4, rows=5), reported(3, rows=5)], 4, 5),
    ],
)
def test_epochs_with_rows_are_done(
    reports: list[Any], first_epoch: int | None, epochs_done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tqdm, "monitor_interval", 0)  # no thread for bars that hang
    progress = EpochProgress()
    with tqdm(total=8) as bar:
        for report in reports:
            progress.show(report, bar)
    assert (progress.first_epoch, progress.epochs_done) == (first_epoch, epochs_done)
