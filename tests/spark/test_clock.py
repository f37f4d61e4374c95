"""The clock beside the input of an operator, in queries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from tests.spark.test_time_modes import TimedStream, ours

pytestmark = pytest.mark.spark


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> TimedStream:
    return TimedStream(spark, tmp_path)


def ticks(stream: TimedStream) -> list[tuple[int, str | None]]:
    """The clock's offsets, by batch."""
    logged = []
    for path in sorted((stream.checkpoint / "offsets").glob("[0-9]*"), key=lambda p: int(p.name)):
        offsets = [json.loads(line) for line in path.read_text().splitlines()[2:]]
        (clock,) = [offset for offset in offsets if "tick" in offset]
        logged.append((clock["tick"], clock["query"]))
    return logged


def rows_in(stream: TimedStream) -> list[tuple[int, int]]:
    """The epoch, and the rows that each subtask's processor got, of the newest epoch."""
    store = CompletedCheckpointStore(open_object_store(str(stream.store())))
    newest = store.newest()
    assert newest is not None
    return [(b.epoch, b.report.rows_in) for b in newest.barriers if b.report is not None]


@pytest.mark.parametrize("mode", ["ProcessingTime", "EventTime"])
def test_one_tick_logs_the_query_and_then_nothing_due_means_no_batch(
    stream: TimedStream, mode: str
) -> None:
    stream.feed_all([[("a", 1)], [("a", 2)], [("b", 3)]])
    query = stream.run(ours(stream.watermarked(), mode))
    assert ticks(stream) == [(1, None), (2, query.id), (2, query.id)]
    stream.run(ours(stream.watermarked(), mode))
    assert stream.committed() == 3
    stream.feed_all([[("a", 4)]])
    stream.run(ours(stream.watermarked(), mode))
    assert ticks(stream)[3:] == [(2, query.id)]
    clocks = Path(stream.store()).parents[1] / "_clocks"
    assert [path for path in clocks.rglob("*") if path.is_file()] == []


def test_a_tick_without_data_runs_every_subtask_and_gives_no_row_to_a_processor(
    stream: TimedStream,
) -> None:
    stream.feed_all([[("a", 1)]])
    query = stream.run(ours(stream.source(), "ProcessingTime"))
    assert ticks(stream) == [(1, None), (2, query.id)]
    assert rows_in(stream) == [(1, 0), (1, 0)]


def test_a_query_that_waits_for_data_runs_no_batches_meanwhile(stream: TimedStream) -> None:
    stream.feed_all([[("a", 1)]])
    progress: list[Any] = []
    query = (
        ours(stream.source(), "ProcessingTime")
        .writeStream.foreachBatch(stream.keep)
        .outputMode("update")
        .option("checkpointLocation", str(stream.checkpoint))
        .start()
    )
    try:
        query.processAllAvailable()
        stream.feed_all([[("b", 1)]])
        query.processAllAvailable()
        progress = query.recentProgress
    finally:
        query.stop()
    assert len(ticks(stream)) == 3
    assert max(batch["batchId"] for batch in progress) == 2
