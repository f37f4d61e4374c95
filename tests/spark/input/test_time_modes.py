"""A processor sees the same times, and drops the same late rows, as with Spark's own operator."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import (
    AnalysisException,
    StreamingQueryException,
)
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import spark_state
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from spark_state.errors import ConfigurationError, UnsupportedOperationError
from tests.support.applications.streams import Stream
from tests.support.processors.processors import Processor
from tests.support.provider.provider_jobs import configured

pytestmark = pytest.mark.spark

SEEN = "key string, at_ms string, batch_ms bigint, watermark_ms bigint"
Seen = dict[int, dict[str, tuple[str, int]]]

# Each element is a batch of (key, event time in ms); the watermark is 10 s behind. The rows of a
# batch are before, at and after the watermarks of this batch and of the previous batch.
BATCHES: Sequence[Sequence[tuple[str, int | None]]] = (
    [("a", 0), ("a", -5), ("b", 1), ("b", 50_000), ("n", None)],
    [("a", 39_999), ("a", 40_000), ("a", 40_001), ("b", 100_000), ("b", 5)],
    [("a", 39_999), ("a", 40_000), ("a", 40_001), ("a", 90_000), ("b", 90_001), ("c", 7)],
    [("c", 7)],
    [("a", 90_000), ("a", 90_001), ("b", 200_000), ("n", None)],
    [("a", 90_000), ("a", 90_001), ("b", 190_001)],
)


class SeesTimes(Processor):
    """A processor that emits its view of time, and the event times of its rows."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        yield Row(
            key=str(key[0]),
            at_ms=repr(sorted(str(row.value) for row in rows)),
            batch_ms=timerValues.getCurrentProcessingTimeInMs(),
            watermark_ms=timerValues.getCurrentWatermarkInMs(),
        )


class TimedStream(Stream):
    """A stream of (key, event time in ms)."""

    def feed_all(self, batches: Sequence[Sequence[tuple[str, int | None]]]) -> None:
        """Write one file a batch, with rising file times, because a file source reads in the order
        of times."""
        for batch in batches:
            number = self._files
            self.feed(list(batch))  # type: ignore[arg-type]
            os.utime(self.input / f"{number:05d}.parquet", (1_000 + number, 1_000 + number))

    def timed(self) -> DataFrame:
        return self.source().withColumn("at", F.timestamp_millis("value"))

    def watermarked(self, delay: str = "10 seconds") -> DataFrame:
        return self.timed().withWatermark("at", delay)

    def seen(self) -> Seen:
        """The rows' event times and the watermark, by batch and key. A batch's time is the time in
        Spark's log."""
        seen: Seen = defaultdict(dict)
        for folder in (self.folder / "output").iterdir():
            epoch = int(folder.name.removeprefix("epoch="))
            for row in self.spark.read.schema(SEEN).parquet(str(folder)).collect():
                assert row.batch_ms in (-1, self.logged(epoch)["batchTimestampMs"])
                seen[epoch][row.key] = (row.at_ms, row.watermark_ms)
        return dict(seen)

    def logged(self, epoch: int) -> dict[str, int]:
        """The times of a batch in Spark's offset log."""
        lines = (self.checkpoint / "offsets" / str(epoch)).read_text().splitlines()
        logged: dict[str, int] = json.loads(lines[1])
        return logged

    def late_rows(self) -> dict[int, int]:
        """The number of dropped rows by batch, from the barriers."""
        store = CompletedCheckpointStore(open_object_store(str(self.store())))
        late = {}
        checkpoint = store.latest_before(1_000)
        while checkpoint is not None:
            reports = [barrier.report for barrier in checkpoint.barriers]
            late[checkpoint.epoch] = sum(r.late_rows or 0 for r in reports)
            checkpoint = store.latest_before(checkpoint.epoch)
        return late


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> TimedStream:
    return TimedStream(spark, tmp_path)


def ours(df: DataFrame, time_mode: str, *keys: Any) -> DataFrame:
    grouped = df.groupBy(*(keys or ("key",)))
    return spark_state.transform_with_state(grouped, SeesTimes(), SEEN, "update", time_mode)


def sparks(stream: TimedStream, output_of: Any, time_mode: str) -> tuple[Seen, dict[int, int]]:
    """The output of Spark's own operator on the same input, and the number of dropped rows."""
    call = SeesTimes(), SEEN, "update", time_mode
    own = stream.on_spark(lambda own: output_of(own).transformWithState(*call))
    dropped = {
        p["batchId"]: p["stateOperators"][0]["numRowsDroppedByWatermark"]
        for p in own.query.recentProgress
    }
    return own.seen(), dropped


def test_event_time_is_that_of_spark_also_over_a_restart(stream: TimedStream) -> None:
    stream.feed_all(BATCHES[:4])
    stream.run(ours(stream.watermarked(), "EventTime"))
    with configured(stream.spark, {"spark.cowstate.parallelism": "3"}):
        stream.feed_all(BATCHES[4:])
        stream.run(ours(stream.watermarked(), "eventTime"))
    seen, dropped = sparks(stream, lambda own: own.watermarked().groupBy("key"), "EventTime")
    assert stream.seen() == seen
    assert seen[1]["b"][1] == 40_000
    late = stream.late_rows()
    assert late == {epoch: dropped[epoch] for epoch in late}
    assert late[0] == 2


def beside(stream: TimedStream, name: str) -> TimedStream:
    """A second stream in the folder of the first."""
    return TimedStream(stream.spark, stream.folder / name)


def with_others(stream: TimedStream) -> DataFrame:
    """A union of two streams with a watermark each, and of a stream without a watermark."""
    others, unmarked = (beside(stream, name) for name in ("others", "unmarked"))
    both = stream.watermarked().union(others.watermarked("5 seconds"))
    return both.union(unmarked.timed())


def feed_others(stream: TimedStream) -> None:
    for name, start in (("others", 20_000), ("unmarked", 500_000)):
        beside(stream, name).feed_all([[("y", start + 25_000 * number)] for number in range(4)])


@pytest.mark.parametrize("policy", ["min", "max"])
def test_of_several_watermarks_the_one_counts_that_spark_takes(
    stream: TimedStream, policy: str
) -> None:
    stream.feed_all(BATCHES[:4])
    feed_others(stream)
    with configured(stream.spark, {"spark.sql.streaming.multipleWatermarkPolicy": policy}):
        stream.run(ours(with_others(stream), "EventTime"))
        seen, dropped = sparks(stream, lambda _: with_others(stream).groupBy("key"), "EventTime")
    assert stream.seen() == seen
    late = stream.late_rows()
    assert late == {epoch: dropped[epoch] for epoch in late}


def of_windows(stream: TimedStream) -> DataFrame:
    return stream.watermarked().select("key", "value", F.window("at", "20 seconds"))


def without_column(stream: TimedStream) -> DataFrame:
    return stream.watermarked().where("value is not null").select("key", "value")


def joined_with_static(stream: TimedStream) -> DataFrame:
    names = stream.spark.createDataFrame([("a", "A")], "key string, name string")
    return without_column(stream).join(names, "key", "left").dropDuplicates(["key", "value"])


@pytest.mark.parametrize("rows_of", [of_windows, joined_with_static])
def test_a_watermark_counts_the_rows_that_it_is_set_on(stream: TimedStream, rows_of: Any) -> None:
    stream.feed_all(BATCHES)
    stream.run(ours(rows_of(stream), "EventTime"))
    seen, dropped = sparks(stream, lambda own: rows_of(own).groupBy("key"), "EventTime")
    assert stream.seen() == seen
    late = stream.late_rows()
    assert late == {epoch: dropped[epoch] for epoch in late}


def test_several_watermarks_that_a_join_mixes_are_refused(stream: TimedStream) -> None:
    right = stream.watermarked().selectExpr("key as other", "at as until")
    joined = stream.watermarked().join(right, F.expr("key = other and until >= at"))
    with pytest.raises(UnsupportedOperationError, match=r"2 watermarks .* below Join"):
        ours(joined, "ProcessingTime")


def test_a_batch_that_runs_again_has_the_time_and_late_rows_that_it_had(
    stream: TimedStream,
) -> None:
    stream.feed_all(BATCHES)
    stream.run(ours(stream.watermarked(), "EventTime"))
    seen, late = stream.seen(), stream.late_rows()
    stream.restart_from(4)
    stream.run(ours(stream.watermarked(), "EventTime"))
    assert (stream.seen()[4], stream.late_rows()[4]) == (seen[4], late[4])


def test_processing_time_shows_the_watermark_and_drops_no_rows(stream: TimedStream) -> None:
    stream.feed_all(BATCHES[:3])
    stream.run(ours(stream.watermarked(), "processingtime"))
    seen = stream.seen()
    assert {watermark for _, watermark in seen[1].values()} == {40_000}
    assert seen[2]["c"] == ("['7']", 90_000)
    assert sum(len(json.loads(at.replace("'", '"'))) for at, _ in seen[2].values()) == 6


def test_time_is_the_same_in_a_sink_without_foreach_batch(
    stream: TimedStream, tmp_path: Path
) -> None:
    stream.feed_all(BATCHES[:2])
    query = (
        ours(stream.watermarked(), "EventTime")
        .writeStream.format("memory")
        .queryName("seen_times")
        .option("checkpointLocation", str(stream.checkpoint))
        .outputMode("update")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = stream.spark.table("seen_times").collect()
    assert {(row.batch_ms, row.watermark_ms) for row in rows} == {
        (stream.logged(epoch)["batchTimestampMs"], watermark)
        for epoch, watermark in ((0, 0), (1, 40_000))
    }


@pytest.mark.parametrize("mode", ["None", "ProcessingTime", "EventTime"])
def test_a_batch_dataframe_has_the_time_of_its_query_and_no_watermark(
    spark: SparkSession, mode: str
) -> None:
    df = spark.createDataFrame([("a", 1), ("b", 2), ("c", 3)], "key string, value bigint")
    before = int(time.time() * 1000)
    rows = ours(df.withColumn("at", F.timestamp_millis("value")), mode).collect()
    assert {row.watermark_ms for row in rows} == {-1}
    (batch_ms,) = {row.batch_ms for row in rows}
    assert batch_ms == -1 if mode == "None" else batch_ms >= before


def test_event_time_without_a_watermark_is_refused(stream: TimedStream) -> None:
    with pytest.raises(ConfigurationError, match="call withWatermark"):
        ours(stream.timed(), "EventTime")


def test_several_event_time_columns_are_spark_s_own_error(stream: TimedStream) -> None:
    df = stream.watermarked().withColumn("again", F.col("at"))
    with pytest.raises(AnalysisException) as caught:
        ours(df, "EventTime")
    assert caught.value.getCondition() == "MULTIPLE_EVENT_TIME_COLUMNS"
    assert "(at, again)" in str(caught.value)


def test_a_restart_in_another_time_mode_is_refused(stream: TimedStream) -> None:
    stream.feed_all(BATCHES[:1])
    stream.run(ours(stream.timed(), "None"))
    with pytest.raises(StreamingQueryException, match="go back to the former timeMode"):
        stream.run(ours(stream.timed(), "ProcessingTime"))
    stream.run(ours(stream.timed(), "None"))
