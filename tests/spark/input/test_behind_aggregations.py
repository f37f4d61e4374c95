"""An operator after an aggregation of Spark works like Spark's own operator there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

import spark_state
from spark_state.errors import UnsupportedOperationError
from tests.support.applications.streams import Stream
from tests.support.processors.processors import Processor
from tests.support.provider.provider_jobs import PROVIDER_KEY, ROCKSDB, configured

pytestmark = pytest.mark.spark

OUTPUT = "key string, windows bigint, total bigint"
BATCHES = (
    [("a", 1_000), ("b", 2_000), ("a", 3_000)],
    [("a", 15_000), ("c", 31_000)],
    [("a", 52_000), ("b", 1_000)],
    [("b", 75_000)],
    [("z", 200_000)],
    [("z", 400_000)],
)


class Windows(Processor):
    """A processor that counts the windows of a key and the rows of the windows."""

    def init(self, handle: Any) -> None:
        self._told = handle.getValueState("told", "windows bigint, total bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        windows, total = self._told.get() or (0, 0)
        for row in rows:
            windows, total = windows + 1, total + row.n
        self._told.update((windows, total))
        yield Row(key=key[0], windows=windows, total=total)


def windows_by_key(stream: Stream) -> Any:
    events = stream.source().withColumn("at", F.timestamp_millis("value"))
    windows = events.withWatermark("at", "5 seconds").groupBy(F.window("at", "10 seconds"), "key")
    return windows.agg(F.count("*").alias("n")).groupBy("key")


def run(stream: Stream, on_cowstate: bool) -> list[Row]:
    """The output of a query that is stopped and started again after three batches."""
    emitted: list[Row] = []
    settings = {} if on_cowstate else {PROVIDER_KEY: ROCKSDB}
    call: Any = (Windows(), OUTPUT, "append", "None")
    for batches in (BATCHES[:3], BATCHES[3:]):
        for batch in batches:
            stream.feed(batch)
        with configured(stream.spark, settings):
            if on_cowstate:
                output = spark_state.transform_with_state(windows_by_key(stream), *call)
            else:
                output = windows_by_key(stream).transformWithState(*call)
            stream.run(output, lambda df, _: emitted.extend(df.collect()), "append")
    return sorted(emitted)


def test_closed_windows_reach_the_operator_as_they_reach_spark_s(
    spark: SparkSession, tmp_path: Path
) -> None:
    expected = run(Stream(spark, tmp_path / "spark"), on_cowstate=False)
    assert run(Stream(spark, tmp_path / "cowstate"), on_cowstate=True) == expected
    assert Row(key="a", windows=3, total=4) in expected


def test_in_event_time_it_is_refused_and_the_way_out_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    grouped = windows_by_key(Stream(spark, tmp_path))
    with pytest.raises(UnsupportedOperationError, match=r"Aggregate in the processor.*fallback"):
        spark_state.transform_with_state(grouped, Windows(), OUTPUT, "append", "EventTime")
    in_batch = spark.createDataFrame([("a", 1)], "key string, n bigint").groupBy("key").sum("n")
    counted = in_batch.withColumnRenamed("sum(n)", "n").groupBy("key")
    rows = spark_state.transform_with_state(counted, Windows(), OUTPUT, "append", "EventTime")
    assert rows.collect() == [Row(key="a", windows=1, total=1)]
