"""The clock beside the input of an operator fires timers in queries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import spark_state
from tests.spark.input.test_time_modes import TimedStream, ours
from tests.support.processors.processors import TOTALS_SCHEMA, Processor
from tests.support.provider.provider_jobs import configured

pytestmark = pytest.mark.spark


class Rings(Processor):
    """A processor that registers a timer for the next millisecond with the first rows of a key."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.known = handle.getValueState("known", "known boolean")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        if not self.known.exists():
            self.known.update((True,))
            self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1)
        yield Row(key=key[0], rows=len(list(rows)), total=0)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        yield Row(key=key[0], rows=0, total=-1)


def rings(df: DataFrame) -> DataFrame:
    grouped = df.groupBy("key")
    return spark_state.transform_with_state(
        grouped, Rings(), TOTALS_SCHEMA, "update", "ProcessingTime", name="rings"
    )


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


def clock_objects(stream: TimedStream) -> set[str]:
    """The names of the objects not yet read by their clocks, of all queries with this store
    root."""
    store_root = stream.spark.conf.get("spark.cowstate.store", "").removeprefix("file://")
    return {path.name for path in Path(store_root, "_clocks").rglob("*") if path.is_file()}


def test_one_tick_logs_the_query_and_then_nothing_due_means_no_batch(stream: TimedStream) -> None:
    # Other tests leave some objects: a query may fail before its clock has read the object.
    left_by_others = clock_objects(stream)
    stream.feed_all([[("a", 1)], [("a", 2)], [("b", 3)]])
    query = stream.run(ours(stream.watermarked(), "ProcessingTime"))
    assert ticks(stream) == [(1, None), (2, query.id), (2, query.id)]
    stream.run(ours(stream.watermarked(), "ProcessingTime"))
    assert stream.committed() == 3
    stream.feed_all([[("a", 4)]])
    stream.run(ours(stream.watermarked(), "ProcessingTime"))
    assert ticks(stream)[3:] == [(2, query.id)]
    assert clock_objects(stream) <= left_by_others


def test_without_batches_without_rows_the_clock_stands_still_and_timers_wait_for_rows(
    spark: SparkSession, stream: TimedStream
) -> None:
    without_rows = "spark.sql.streaming.noDataMicroBatches.enabled"
    with configured(spark, {without_rows: "false", "spark.cowstate.parallelism": "1"}):
        for expected in ([(0, 1)], [(0, 1), (1, 0), (1, 1)]):
            stream.feed_all([[("a", 1)]])
            stream.run(rings(stream.source()))
            assert sorted((epoch, rows) for epoch, _, rows, _ in stream.kept()) == expected
    assert ticks(stream) == [(0, None)] * 2
    stream.feed_all([[("b", 1)]])
    query = stream.run(rings(stream.source()))
    assert ticks(stream)[2:4] == [(1, None), (2, query.id)]
