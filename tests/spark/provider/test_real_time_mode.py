"""Spark's real-time mode refuses cowstate's state, and works on RocksDB in a configured session."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import IllegalArgumentException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import spark_state
from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
from tests.support.applications.provider_application import totals
from tests.support.applications.streams import Stream, random_rows, totals_of
from tests.support.processors.processors import TOTALS_SCHEMA, RunningTotals
from tests.support.provider.provider_jobs import ROCKSDB, configured
from tests.support.sessions.spark_versions import needs_spark_4_3

pytestmark = [
    pytest.mark.spark,
    needs_spark_4_3("Spark 4.2 has no real-time mode in Python"),
]

SOURCES = "org.apache.spark.sql.execution.streaming.sources"
SETTINGS = {"spark.sql.shuffle.partitions": "1"}


class LowLatencySource:
    """Spark's source in memory for real-time mode, with one partition of integers."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        companion = getattr(self._jvm, f"{SOURCES}.LowLatencyMemoryStream$").__getattr__("MODULE$")
        encoder = self._jvm.org.apache.spark.sql.Encoders.INT()
        self._stream = companion.apply(spark._jsparkSession, 1, encoder)
        self.rows = DataFrame(self._stream.toDF(), spark)

    def add(self, *numbers: int) -> None:
        rows = self._jvm.java.util.ArrayList(list(numbers))
        converters = self._jvm.scala.jdk.javaapi.CollectionConverters
        self._stream.addData(converters.asScala(rows).toSeq())


class WritesRows:
    """A sink that appends each row to a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def process(self, row: Row) -> None:
        with self.file.open("a") as file:
            file.write(f"{row.key} {row.rows} {row.total}\n")


def start(rows: DataFrame, folder: Path) -> StreamingQuery:
    writer = rows.writeStream.foreach(WritesRows(folder / "rows")).outputMode("update")
    located = writer.option("checkpointLocation", str(folder / "real-time"))
    return located.trigger(realTime="5 seconds").start()


def by_key(source: LowLatencySource) -> DataFrame:
    key = (F.col("value") % 3).cast("string").alias("key")
    return source.rows.groupBy(key).agg(F.count("*").alias("rows"), F.sum("value").alias("total"))


def written(folder: Path) -> dict[str, tuple[int, int]]:
    """The newest row of each key."""
    file = folder / "rows"
    lines = file.read_text().splitlines() if file.exists() else []
    rows = [line.split() for line in lines if line.count(" ") == 2]
    return {key: (int(count), int(total)) for key, count, total in rows}


@pytest.fixture
def source(spark: SparkSession) -> Iterator[LowLatencySource]:
    with configured(spark, SETTINGS):
        yield LowLatencySource(spark)


def test_a_query_in_real_time_runs_on_rocksdb_beside_a_query_on_the_provider(
    spark: SparkSession, source: LowLatencySource, tmp_path: Path
) -> None:
    batches = Stream(spark, tmp_path / "batches", {PROVIDER_KEY: PROVIDER_CLASS})
    rows = random_rows(1, count=100, keys=30)
    batches.feed(rows)
    batches.run(totals(batches))
    with configured(spark, {PROVIDER_KEY: ROCKSDB}):
        query = start(by_key(source), tmp_path)
        try:
            for first in (0, 10, 20):
                source.add(*range(first, first + 10))
            batches.feed(rows)
            batches.run(totals(batches))
            expected = {str(key): (10, sum(range(key, 30, 3))) for key in range(3)}
            deadline = time.monotonic() + 120
            while written(tmp_path) != expected and time.monotonic() < deadline:
                assert query.exception() is None
                time.sleep(0.2)
            assert written(tmp_path) == expected
        finally:
            query.stop()
    assert batches.totals() == totals_of([*rows, *rows])


def test_real_time_mode_refuses_the_provider(
    spark: SparkSession, source: LowLatencySource, tmp_path: Path
) -> None:
    with (
        configured(spark, {PROVIDER_KEY: PROVIDER_CLASS}),
        pytest.raises(IllegalArgumentException, match=f"{PROVIDER_KEY} must be {ROCKSDB}"),
    ):
        start(by_key(source), tmp_path)


def test_real_time_mode_refuses_an_operator(
    spark: SparkSession, source: LowLatencySource, tmp_path: Path
) -> None:
    keyed = source.rows.select(F.col("value").cast("string").alias("key"), "value").groupBy("key")
    settings = {PROVIDER_KEY: ROCKSDB, "spark.cowstate.store": str(tmp_path / "store")}
    with configured(spark, settings):
        rows = spark_state.transform_with_state(
            keyed, RunningTotals(), TOTALS_SCHEMA, "update", "None"
        )
        query = start(rows, tmp_path)
        source.add(1)
        with pytest.raises(StreamingQueryException, match="MapInArrowExec is not in the operator"):
            query.awaitTermination(60)
