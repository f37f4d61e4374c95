"""Late rows in chains of stateful operators are dropped as by Spark's own operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import spark_state
from tests.spark.input.test_time_modes import TimedStream
from tests.support.processors.processors import Processor
from tests.support.provider.provider_jobs import PROVIDER_KEY, ROCKSDB, configured

pytestmark = pytest.mark.spark

EMITTED = "key string, at timestamp, value bigint"
# Each part is fed after all earlier parts are done, so a batch without data has moved the
# watermark. The delay is 10 s: rows up to 40 s are late in the second part, and up to 90 s after
# the second part.
PARTS: Sequence[Sequence[tuple[str, int]]] = (
    [("a", 1_000), ("b", 50_000)],
    [("a", 39_000), ("a", 40_000), ("b", 41_000), ("c", 45_000), ("b", 100_000)],
    [("a", 89_000), ("c", 91_000), ("b", 95_000)],
    [("a", 150_000), ("b", 92_000)],
)
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
}


class PassesRows(Processor):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            yield Row(key=key[0], at=row.at, value=row.value)


OfSpark = Callable[[DataFrame, DataFrame], DataFrame]
"""Rows and the source -> a stateful operator of Spark on the rows."""
Operate = Callable[..., DataFrame]
"""A DataFrame, a time mode, an output column of event times or "", a name -> an operator on it."""


def on_spark(df: DataFrame, mode: str, event_time: str, name: str) -> DataFrame:
    grouped: Any = df.groupBy("key")
    return grouped.transformWithState(
        PassesRows(), EMITTED, "append", mode, eventTimeColumnName=event_time
    )


def on_cowstate(df: DataFrame, mode: str, event_time: str, name: str) -> DataFrame:
    return spark_state.transform_with_state(
        df.groupBy("key"),
        PassesRows(),
        EMITTED,
        "append",
        mode,
        event_time_column_name=event_time,
        name=name,
    )


def deduplicated(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.dropDuplicates(["key", "at"])


def windows(rows: DataFrame, _: DataFrame) -> DataFrame:
    counts = rows.groupBy(F.window("at", "10 seconds"), "key").agg(F.sum("value").alias("value"))
    return counts.select("key", F.col("window.start").alias("at"), "value")


def joined(rows: DataFrame, source: DataFrame) -> DataFrame:
    """Join each row with the source's rows of the same key within a second."""
    others = source.select(F.col("key").alias("k"), F.col("at").alias("t"))
    near = F.expr("key = k AND t >= at AND t <= at + INTERVAL 1 SECOND")
    return rows.join(others, near).select("key", "at", "value")


@dataclass(frozen=True)
class Chain:
    """A chain of stateful operators.

    `before`, `after`: Spark's operators around the tested operator. `others`: the number of further
    operators of the tested kind after the first.
    """

    mode: str
    before: OfSpark | None = None
    after: OfSpark | None = None
    others: int = 0

    def of(self, source: DataFrame, operate: Operate) -> DataFrame:
        rows = source if self.before is None else self.before(source, source)
        marked = "at" if self.after is not None or self.others else ""
        for number in range(1 + self.others):
            rows = operate(rows, self.mode, marked, f"operator{number}")
        return rows if self.after is None else self.after(rows, source)


# The operator sees only watermarks and marks of columns, the same for all operators of Spark.
CHAINS = {
    "operator": Chain("EventTime"),
    "join > operator": Chain("EventTime", joined),
    "operator > aggregation": Chain("EventTime", after=windows),
    "operator > operator": Chain("EventTime", others=1),
    "deduplication > operator in None > aggregation": Chain("None", deduplicated, windows),
}


def emitted(stream: TimedStream, chain: Chain, operate: Operate) -> list[list[tuple[str, int]]]:
    """The keys and values that a chain emits, for each part of the input."""
    rows: list[tuple[str, int]] = []
    by_part = []

    def keep(df: DataFrame, _: int) -> None:
        rows.extend((row.key, row.value) for row in df.collect())

    writer = chain.of(stream.watermarked(), operate).writeStream.foreachBatch(keep)
    writer = writer.option("checkpointLocation", str(stream.checkpoint)).outputMode("append")
    with configured(stream.spark, stream.settings):
        query = writer.start()
    try:
        for part in PARTS:
            stream.feed(list(part))
            query.processAllAvailable()
            by_part.append(sorted(rows))
            rows.clear()
    finally:
        query.stop()
    return by_part


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_takes_and_drops_the_rows_that_it_does_with_spark_s_own_operator(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    chain = CHAINS[name]
    with configured(spark, SETTINGS):
        with configured(spark, {PROVIDER_KEY: ROCKSDB}):
            expected = emitted(TimedStream(spark, tmp_path / "spark"), chain, on_spark)
        shown = emitted(TimedStream(spark, tmp_path / "cowstate"), chain, on_cowstate)
    assert shown == expected
