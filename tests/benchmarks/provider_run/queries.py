"""The measured queries, and the number of keys, rows and batches of each query."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from provider_run.machine import SPARK_STATE

SOAK_WARM_BATCHES = 50
SOAK_BATCHES = 500


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a query. `rows`: rows of a batch. `prefill_rows`: rows of a batch while the state
    fills. `warm`, `measured`: numbers of batches."""

    keys: int
    rows: int
    prefill_rows: int
    warm: int
    measured: int

    def scaled(self, scale: float) -> Load:
        return Load(
            max(1, int(self.keys * scale)),
            max(1, int(self.rows * scale)),
            max(1, int(self.prefill_rows * scale)),
            self.warm,
            self.measured,
        )

    @property
    def prefill_batches(self) -> int:
        return math.ceil(self.keys / self.prefill_rows)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A query of the benchmark.

    `counts`: the state counts the rows read. `restarts`: first batches after a restart are
    measured. `fills`: the state has each key once, and is filled first, as with `counts`.
    """

    build: Callable[[SparkSession, Load, int], DataFrame]
    mode: str
    load: Load
    counts: bool = False
    restarts: bool = False
    fills: bool = False

    @property
    def has_each_key(self) -> bool:
        return self.counts or self.fills


def rows_of(spark: SparkSession, rows: int, first_ms: int = 0) -> DataFrame:
    """A stream of rows. `value` counts up. Each batch's `timestamp` is a second after the batch
    before."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    return source.option("advanceMillisPerBatch", 1000).option("startTimestamp", first_ms).load()


def key_of(load: Load) -> Column:
    """The key of a row: first each key once, then hashed keys."""
    hashed = F.pmod(F.xxhash64("value"), F.lit(load.keys))
    return F.when(F.col("value") < load.keys, F.col("value")).otherwise(hashed).alias("key")


def count_and_sum(spark: SparkSession, load: Load, rows: int) -> DataFrame:
    totals = F.count("*").alias("count"), F.sum("value").alias("sum")
    return rows_of(spark, rows).groupBy(key_of(load)).agg(*totals)


def many_sums(spark: SparkSession, load: Load, rows: int) -> DataFrame:
    """Sums with a record of 184 bytes for each key, with the record's header."""
    sums = (F.sum(F.col("value") + number).alias(f"sum{number}") for number in range(17))
    return rows_of(spark, rows).groupBy(key_of(load)).agg(F.count("*").alias("count"), *sums)


def count_and_text(spark: SparkSession, load: Load, rows: int) -> DataFrame:
    text = F.repeat(F.lit("x"), F.pmod(F.hash("value"), F.lit(40)).cast("int"))
    totals = F.count("*").alias("count"), F.last(text).alias("text")
    return rows_of(spark, rows).groupBy(key_of(load)).agg(*totals)


def distinct_keys(spark: SparkSession, load: Load, rows: int) -> DataFrame:
    """Distinct keys, none of which becomes too old during the run. Rows at timestamp 0 would be
    late."""
    events = rows_of(spark, rows, first_ms=1000).withWatermark("timestamp", "1 day")
    return events.withColumn("key", key_of(load)).dropDuplicatesWithinWatermark(["key"])


def group_counts(spark: SparkSession, load: Load, rows: int) -> DataFrame:
    """Counts by key in Spark's flatMapGroupsWithState. No key times out during the run."""
    events = rows_of(spark, rows, first_ms=1000).withWatermark("timestamp", "1 second")
    counts: Any = getattr(spark._jvm, f"{SPARK_STATE}.benchmark.GroupCounts")
    return DataFrame(counts.of(events.select(key_of(load), "timestamp")._jdf), spark)


def with_answers(df: DataFrame) -> DataFrame:
    """The query with number and checksum of the output rows in the progress of each batch."""
    checksum = F.bit_xor(F.xxhash64(*df.columns)).alias("checksum")
    return df.observe("answers", F.count("*").alias("rows"), checksum)


def session_windows(spark: SparkSession, load: Load, rows: int) -> DataFrame:
    key = F.pmod(F.xxhash64("value"), F.lit(load.keys)).alias("key")
    events = rows_of(spark, rows).withWatermark("timestamp", "2 seconds")
    session = F.session_window("timestamp", "3 seconds")
    return with_answers(events.groupBy(key, session).agg(F.count("*"), F.sum("value")))


def stream_join(spark: SparkSession, load: Load, rows: int) -> DataFrame:
    """A join in which each row on the right meets the row on the left from three batches before."""
    left = rows_of(spark, rows).selectExpr("value AS id", "timestamp AS shown")
    right = rows_of(spark, rows).selectExpr(f"value - 3 * {rows} AS ref", "timestamp AS clicked")
    joined = left.withWatermark("shown", "1 second").join(
        right.withWatermark("clicked", "1 second"),
        F.expr("id = ref AND clicked >= shown AND clicked <= shown + INTERVAL 10 SECONDS"),
    )
    return with_answers(joined)


SCENARIOS = {
    "a": Scenario(count_and_sum, "update", Load(2_000_000, 500_000, 500_000, 3, 8), counts=True),
    "b": Scenario(
        count_and_sum,
        "update",
        Load(4_500_000, 10_000, 1_500_000, 5, 30),
        counts=True,
        restarts=True,
    ),
    "session": Scenario(session_windows, "append", Load(150_000, 50_000, 50_000, 8, 15)),
    "join": Scenario(stream_join, "append", Load(50_000, 50_000, 50_000, 16, 15)),
    "e": Scenario(distinct_keys, "append", Load(4_500_000, 10_000, 1_500_000, 5, 15), fills=True),
    "groups": Scenario(group_counts, "update", Load(1_000_000, 50_000, 500_000, 5, 15), fills=True),
    "d": Scenario(many_sums, "update", Load(40_000_000, 500_000, 500_000, 3, 8), counts=True),
    "soak": Scenario(
        count_and_text,
        "update",
        Load(100_000, 100_000, 100_000, SOAK_WARM_BATCHES, SOAK_BATCHES),
        counts=True,
    ),
}
WARM_UP = Load(1000, 1000, 1000, 0, 3)
