"""Applications that write and stream tables are exact, though their drivers are killed.

Each application has its own driver. Afterwards the query continues in the session of the tests, as
in a driver that starts anew.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from checkpoint_store.state_reader import open_store
from tests.support.applications import whole_applications
from tests.support.applications.lost_commits import forget_last_commit
from tests.support.tables.table_jobs import Values, in_order, last_rows, run_job, version_files

pytestmark = [pytest.mark.spark, pytest.mark.fault]
KILLED = -signal.SIGKILL
Application = subprocess.Popen[bytes]


def feed(folder: Path, batches: int) -> list[Values]:
    """Write files of events (id, key, value), one file a batch. Ids come again with greater values.

    A job killed between two logs of Spark's file source takes two files in its next batch, so the
    table takes the greatest value of an id.
    """
    chance = random.Random(1)
    (folder / "input").mkdir()
    fed: list[Values] = []
    for number in range(batches):
        ids = chance.sample(range(60), 30)
        keys = [f"key{chance.randrange(7)}" for _ in ids]
        values = [1000 * number + chance.randrange(1000) for _ in ids]
        events = pa.table({"id": ids, "key": keys, "value": values})
        file = folder / "input" / f"{number:05d}.parquet"
        pq.write_table(events, file)
        os.utime(file, (1_700_000_000 + number,) * 2)
        fed += zip(ids, keys, values, strict=True)
    return fed


def start(folder: Path, job: str, kill: str = "never:0") -> Application:
    module = "tests.support.tables.table_jobs"
    log = folder / f"{job}.log"
    return whole_applications.start(module, job, str(folder), "--kill", kill, log=log)


def files_of_batch(table: Path, batch: int) -> int:
    return len(list(table.glob(f"data/*/{batch:019d}/*.arrow")))


def content(table: Path) -> list[Values]:
    return in_order(tuple(row.values()) for row in open_store(str(table)).read().to_pylist())


def sums_of(events: list[Values]) -> dict[str, int]:
    """Compute in batch the sum by key of the last rows of all events."""
    sums: Counter[str] = Counter()
    for _, key, value in last_rows(events):
        sums[key] += value
    return dict(sums)


def totals_in(table: Path) -> dict[str, int]:
    return {key: total for key, _, total in content(table)}


def test_a_sink_killed_at_any_point_of_a_batch_has_each_batch_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    fed = feed(tmp_path, 4)
    table = tmp_path / "events"
    for batch, (point, published) in enumerate((("before-commit", 0), ("after-commit", 1))):
        assert start(tmp_path, "upsert", f"{point}:{batch}").wait() == KILLED
        assert files_of_batch(table, batch) > 0
        assert not (tmp_path / "events-checkpoint" / "commits" / str(batch)).exists()
        assert len(version_files(str(table))) == batch + published
        assert content_before(table) == last_rows(fed[: 30 * (batch + published)])
    run_job(spark, "upsert", tmp_path)
    assert content(table) == last_rows(fed)
    assert len(version_files(str(table))) == 4
    assert files_of_batch(table, 0) == 2 * files_of_batch(table, 3)


def content_before(table: Path) -> list[Values]:
    """The rows of a table, or no rows if the table has no version yet."""
    return content(table) if version_files(str(table)) else []


@pytest.mark.parametrize(
    ("batches", "kills", "longest_seconds"),
    [
        (10, 1, 4.0),
        pytest.param(150, 40, 6.0, marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
def test_a_chain_of_two_jobs_has_exact_sums_whichever_is_killed(
    spark: SparkSession, tmp_path: Path, batches: int, kills: int, longest_seconds: float
) -> None:
    fed = feed(tmp_path, batches)
    kill_both_at_random(tmp_path, random.Random(2), kills, longest_seconds)
    run_job(spark, "upsert", tmp_path)
    run_job(spark, "totals", tmp_path)
    assert content(tmp_path / "events") == last_rows(fed)
    assert totals_without_zeros(tmp_path) == sums_of(fed)


def test_a_chain_stopped_before_spark_knows_of_a_commit_has_exact_sums(
    spark: SparkSession, tmp_path: Path
) -> None:
    fed = feed(tmp_path, 4)
    run_job(spark, "upsert", tmp_path)
    run_job(spark, "totals", tmp_path)
    assert forget_last_commit(tmp_path / "totals-checkpoint") == 3
    run_job(spark, "totals", tmp_path)
    assert len(version_files(str(tmp_path / "totals"))) == 4
    assert totals_without_zeros(tmp_path) == sums_of(fed)


def test_an_aggregation_in_update_mode_killed_before_a_commit_has_exact_sums(
    spark: SparkSession, tmp_path: Path
) -> None:
    fed = feed(tmp_path, 4)
    table = tmp_path / "sums"
    assert start(tmp_path, "sums", "before-commit:1").wait() == KILLED
    assert files_of_batch(table, 1) > 0
    assert not (tmp_path / "sums-checkpoint" / "commits" / "1").exists()
    assert len(version_files(str(table))) == 1
    run_job(spark, "sums", tmp_path)
    sums: Counter[str] = Counter()
    for _, key, value in fed:
        sums[key] += value
    assert dict(content(table)) == dict(sums)
    assert len(version_files(str(table))) == 4


def kill_both_at_random(
    folder: Path, chance: random.Random, kills: int, longest_seconds: float
) -> None:
    """Run both jobs side by side, and kill each job some time after its first write."""
    for _ in range(kills):
        running = {job: start(folder, job) for job in ("upsert", "totals")}
        checkpoints = {"upsert": "events-checkpoint", "totals": "totals-checkpoint"}
        for job in chance.sample(sorted(running), 2):
            offsets = folder / checkpoints[job] / "offsets"
            # Spark refuses a log with only the beginning of its first entry.
            before = set(offsets.glob("[0-9]*"))
            while running[job].poll() is None and set(offsets.glob("[0-9]*")) == before:
                time.sleep(0.05)
            time.sleep(chance.uniform(0, longest_seconds))
            whole_applications.kill(running[job])


def totals_without_zeros(folder: Path) -> dict[str, int]:
    """The totals of the table, without zeros. A key without events has the total 0 in the table,
    and is missing in the batch computation."""
    return {key: total for key, total in totals_in(folder / "totals").items() if total}
