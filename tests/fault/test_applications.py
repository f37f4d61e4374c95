"""Whole applications whose hosts or executors are killed, each with a driver of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.processors import POISON
from tests.support.streams import Row, Totals, random_rows, totals_of

pytestmark = [pytest.mark.spark, pytest.mark.fault]
ROOT = Path(__file__).resolve().parents[2]


def feed(folder: Path, epochs: list[list[Row]]) -> list[Row]:
    (folder / "input").mkdir(parents=True)
    for number, rows in enumerate(epochs):
        keys, values = zip(*rows, strict=True)
        table = pa.table({"key": pa.array(keys), "value": pa.array(values, pa.int64())})
        pq.write_table(table, folder / "input" / f"{number:05d}.parquet")
    return [row for rows in epochs for row in rows]


def run_job(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.support.job", str(folder), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def totals_in(folder: Path) -> Totals:
    found: dict[str, tuple[int, int]] = {}
    epochs = sorted((folder / "output").iterdir(), key=lambda path: int(path.name[6:]))
    for path in epochs:
        for row in pq.read_table(path).to_pylist():
            found[row["key"]] = (row["rows"], row["total"])
    return found


def poisoned_epochs() -> list[list[Row]]:
    epochs = [random_rows(seed, count=300, keys=60) for seed in range(5)]
    epochs[2].append(("key1", POISON))
    return epochs


def test_with_retries_a_killed_host_costs_a_task_attempt_only(tmp_path: Path) -> None:
    fed = feed(tmp_path, poisoned_epochs())
    job = run_job(tmp_path, "--master", "local[2,4]", "--kill", "host")
    assert job.returncode == 0, job.stderr[-5000:]
    assert (tmp_path / "killed").exists()
    assert totals_in(tmp_path) == totals_of(fed)


def test_a_killed_executor_is_replaced_and_loses_nothing(tmp_path: Path) -> None:
    fed = feed(tmp_path, poisoned_epochs())
    job = run_job(
        tmp_path, "--master", "local-cluster[2,1,1024]", "--kill", "executor", "--parallelism", "3"
    )
    assert job.returncode == 0, job.stderr[-5000:]
    assert (tmp_path / "killed").exists()
    assert totals_in(tmp_path) == totals_of(fed)


def test_print_and_logging_of_a_processor_appear_in_the_executors_log(tmp_path: Path) -> None:
    feed(tmp_path, [[("a", 1)]])
    job = run_job(tmp_path, "--speak")
    assert job.returncode == 0, job.stderr[-5000:]
    assert "a processor prints" in job.stderr
    assert "a processor logs" in job.stderr
