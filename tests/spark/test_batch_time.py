"""The time of a batch, as tasks and processors have it, is what Spark logs with its offsets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_state
from spark_state.processor.epoch_time import EpochTime
from spark_state.spark.operator import operator_plan
from spark_state.spark.operator.batch_identity import BatchIdentity
from spark_state.spark.operator.batch_time import named_time
from tests.support.processors import TOTALS_SCHEMA, SeesTime, both_times
from tests.support.streams import Stream

pytestmark = pytest.mark.spark

ALL_TIMES = "all times"


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    stream = Stream(spark, tmp_path)
    for epoch in range(3):
        stream.feed([("a", 100 * epoch + 1), ("b", 100 * epoch + 7), ("c", 100 * epoch)])
    return stream


def with_watermark(stream: Stream, time_mode: str = "None") -> DataFrame:
    """An operator whose rows have `value` as their seconds since 1970."""
    rows = stream.source().withColumn("at", F.timestamp_seconds("value"))
    grouped = rows.withWatermark("at", "0 seconds").groupBy("key")
    return spark_state.transform_with_state(grouped, SeesTime(), TOTALS_SCHEMA, "update", time_mode)


def logged(stream: Stream) -> dict[int, EpochTime]:
    """By batch, what Spark's offset log says."""
    times = {}
    for path in (stream.checkpoint / "offsets").glob("[0-9]*"):
        written = json.loads(path.read_text().splitlines()[1])
        times[int(path.name)] = EpochTime(written["batchTimestampMs"], written["batchWatermarkMs"])
    return times


def test_every_task_of_a_batch_finds_its_time_also_when_it_runs_again(stream: Stream) -> None:
    times_seen: list[tuple[int, EpochTime | None]] = []

    def sink(batch: DataFrame, epoch: int) -> None:
        stream.keep(batch, epoch)
        context = batch.sparkSession.sparkContext
        query_id = context.getLocalProperty("sql.streaming.queryId")
        run_id = context.getLocalProperty("cowstate.run").partition("/")[2]
        identity = BatchIdentity(str(query_id), run_id, epoch)
        other = BatchIdentity(str(query_id), run_id, epoch + 1)

        def times(_: Iterator[int]) -> Iterator[Any]:
            task = TaskContext.get()
            assert task is not None
            yield named_time(task, identity), named_time(task, other)

        for time, of_other in context.parallelize([0, 0], 2).mapPartitions(times).collect():
            assert of_other is None
            times_seen.append((epoch, time))

    stream.run(with_watermark(stream), sink=sink)
    first = logged(stream)
    assert times_seen == [(epoch, first[epoch]) for epoch in sorted(first) for _ in range(2)]
    assert first[2].watermark_ms == 107_000
    stream.roll_back(2)
    del times_seen[:]
    stream.run(with_watermark(stream), sink=sink)
    assert times_seen[:2] == [(2, first[2])] * 2


def test_a_processor_sees_the_batch_s_time_in_a_mode_that_shows_it(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(operator_plan._TIME_MODES, ALL_TIMES, both_times)
    stream.run(with_watermark(stream, ALL_TIMES))
    for epoch in range(3):
        kept = stream.spark.read.parquet(str(stream.folder / "output" / f"epoch={epoch}"))
        seen = {EpochTime(row["rows"], row["total"]) for row in kept.collect()}
        assert seen == {logged(stream)[epoch]}
