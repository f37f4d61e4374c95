"""Timers fire in queries, with and without rows, as with Spark's own operator."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

import spark_state
from tests.spark.input.test_time_modes import TimedStream
from tests.support.processors.processors import Processor
from tests.support.provider.provider_jobs import configured

pytestmark = pytest.mark.spark

A_YEAR_MS = 365 * 86_400_000
FIRED = "key string, rows bigint, total bigint"


class EmitsWhenIdle(Processor):
    """A processor that counts rows and emits the count when its timer fires.

    In event time the timer fires 20 s after the key's first row, in processing time `patience_ms`
    after the row.
    """

    def __init__(self, patience_ms: int | None = None) -> None:
        self._patience_ms = patience_ms

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._count = handle.getValueState("count", "rows bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        values = [row.value for row in rows]
        if not self._count.exists():
            if self._patience_ms is None:
                self._handle.registerTimer(min(values) + 20_000)
            else:
                now_ms = timerValues.getCurrentProcessingTimeInMs()
                self._handle.registerTimer(now_ms + self._patience_ms)
            self._count.update((len(values),))
        else:
            self._count.update((self._count.get()[0] + len(values),))
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        count = self._count.get()[0]
        self._count.clear()
        expiry_ms = expiredTimerInfo.getExpiryTimeInMs()
        yield Row(key=key[0], rows=count, total=expiry_ms if self._patience_ms is None else 0)


BATCHES = (
    [("a", 1_000), ("b", 15_000), ("c", 1_500)],
    [("a", 2_000), ("d", 31_000)],
    [("b", 25_000), ("e", 60_000)],
    [("a", 61_000)],
    [("f", 100_000)],
)


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> TimedStream:
    return TimedStream(spark, tmp_path)


def output(stream: TimedStream, processor: StatefulProcessor, mode: str) -> DataFrame:
    grouped = stream.watermarked().groupBy("key")
    return spark_state.transform_with_state(grouped, processor, FIRED, "update", mode)


def test_in_event_time_they_fire_in_the_batches_in_which_spark_s_own_fire(
    stream: TimedStream,
) -> None:
    stream.feed_all(BATCHES)
    with configured(stream.spark, {"spark.cowstate.parallelism": "3"}):
        stream.run(output(stream, EmitsWhenIdle(), "EventTime"))
    call = EmitsWhenIdle(), FIRED, "update", "EventTime"
    expected = stream.on_spark(
        lambda own: own.watermarked().groupBy("key").transformWithState(*call)
    )
    assert sorted(stream.kept()) == sorted(expected.kept())
    # The last timer fires in a batch without rows.
    assert max(epoch for epoch, *_ in stream.kept()) == len(BATCHES)


def test_in_processing_time_they_fire_without_data(stream: TimedStream) -> None:
    stream.feed_all([[("a", 1), ("b", 2), ("a", 3)]])
    query = (
        output(stream, EmitsWhenIdle(patience_ms=1_500), "ProcessingTime")
        .writeStream.foreachBatch(stream.keep)
        .outputMode("update")
        .option("checkpointLocation", str(stream.checkpoint))
        .start()
    )
    try:
        give_up = time.monotonic() + 120
        while len(fired(stream)) < 2 and time.monotonic() < give_up and query.isActive:
            time.sleep(0.1)
    finally:
        query.stop()
    assert query.exception() is None
    assert fired(stream) == [("a", 2, 0), ("b", 1, 0)]


def test_in_processing_time_a_restart_fires_what_became_due_while_nothing_ran(
    stream: TimedStream,
) -> None:
    stream.feed_all([[("z", 1)]])
    stream.run(output(stream, EmitsWhenIdle(patience_ms=A_YEAR_MS), "ProcessingTime"))
    stream.feed_all([[("a", 1), ("b", 2)]])
    soon = EmitsWhenIdle(patience_ms=1)
    stream.run(output(stream, soon, "ProcessingTime"))
    batches = stream.committed()
    assert fired(stream) == []  # a timer due after the query's start waits for the next run
    with configured(stream.spark, {"spark.cowstate.parallelism": "3"}):
        stream.run(output(stream, soon, "ProcessingTime"))
    assert fired(stream) == [("a", 1, 0), ("b", 1, 0)]
    assert stream.committed() == batches + 1
    stream.run(output(stream, soon, "ProcessingTime"))
    assert stream.committed() == batches + 1


def fired(stream: TimedStream) -> list[tuple[str, int, int]]:
    """The output so far, also while the query runs."""
    if not (stream.folder / "output" / "epoch=0" / "_SUCCESS").exists():
        return []
    return sorted(row[1:] for row in stream.kept())
