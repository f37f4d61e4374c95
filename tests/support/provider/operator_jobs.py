"""Queries with each stateful operator that the provider supports, over two streams of events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from tests.support.provider.provider_inputs import EventShape
from tests.support.provider.provider_jobs import JOIN_STORES, Fields, Job
from tests.support.provider.provider_jvm import ProviderJvm

SHAPE = EventShape(rows=120, keys=30)
LARGE = EventShape(rows=900, keys=30)
SPARSE = EventShape(rows=60, keys=200)
SCATTERED = EventShape(rows=60, keys=60)
JOINED = EventShape(rows=100, keys=60)
TWO_OPERATORS = ({"operatorId": "0"}, {"operatorId": "1"})
JOIN_BELOW = ({"operatorId": "0"}, *({"operatorId": "1", **store} for store in JOIN_STORES))
GROUP_STATE = "events bigint, text string"
GROUP_OUTPUT = "key string, events bigint, text string, timed_out boolean"


def marked(events: DataFrame) -> DataFrame:
    return events.withWatermark("moment", "1 minute")


def totals(groups: Any) -> DataFrame:
    aggregated: DataFrame = groups.agg(
        F.count("*").alias("events"),
        F.sum("amount").alias("amount"),
        F.max("text").alias("longest"),
    )
    return aggregated


def by_key(events: DataFrame, _: DataFrame) -> DataFrame:
    return totals(events.groupBy("key"))


def by_key_in_hash_tables(events: DataFrame, _: DataFrame) -> DataFrame:
    """Aggregates whose buffers have a fixed length."""
    return events.groupBy("key").agg(
        F.avg("amount").alias("average"),
        F.max("moment").alias("newest"),
        F.approx_count_distinct("amount").alias("distinct"),
    )


def by_moment_as_objects(events: DataFrame, _: DataFrame) -> DataFrame:
    """An aggregate whose buffers are objects, over more keys than Spark keeps in an object hash
    table."""
    return events.groupBy("key", "moment").agg(F.collect_list("amount").alias("amounts"))


def keys_alone(events: DataFrame, _: DataFrame) -> DataFrame:
    return events.groupBy("key").agg(F.lit(1).alias("one"))


def overall(events: DataFrame, _: DataFrame) -> DataFrame:
    return totals(events.groupBy())


def by_window(events: DataFrame, _: DataFrame) -> DataFrame:
    return totals(marked(events).groupBy(F.window("moment", "40 seconds", "20 seconds"), "key"))


def distinct(events: DataFrame, _: DataFrame) -> DataFrame:
    return events.dropDuplicates(["key", "amount"])


def distinct_marked(events: DataFrame, _: DataFrame) -> DataFrame:
    return marked(events).dropDuplicates(["key", "moment"])


def distinct_within_watermark(events: DataFrame, _: DataFrame) -> DataFrame:
    return marked(events).dropDuplicatesWithinWatermark(["key", "amount"])


def sessions(events: DataFrame, _: DataFrame) -> DataFrame:
    return totals(marked(events).groupBy(F.session_window("moment", "25 seconds"), "key"))


def limited(events: DataFrame, _: DataFrame) -> DataFrame:
    return events.limit(3 * SHAPE.rows + 7)


def joined(how: str) -> Job:
    def build(left: DataFrame, right: DataFrame) -> DataFrame:
        lefts = marked(left).alias("l")
        rights = marked(right).alias("r")
        condition = (
            "l.key = r.key AND r.moment BETWEEN l.moment - INTERVAL 20 SECONDS "
            "AND l.moment + INTERVAL 30 SECONDS AND l.amount % 3 != r.amount % 3"
        )
        return lefts.join(rights, F.expr(condition), how)

    return Job(build, stores=JOIN_STORES)


def joined_by_many_types(left: DataFrame, right: DataFrame) -> DataFrame:
    """Join by keys of fixed and variable length, some with nulls."""
    keys = {
        "name": F.struct("key", F.length("key").alias("length")),
        "parts": F.array("key", F.lit(None)),
        "number": (F.col("amount") % 2).cast("decimal(25, 3)"),
        "flag": F.col("amount") % 3 == 0,
    }
    lefts = marked(left).withColumns(keys).alias("l")
    rights = marked(right).withColumns(keys).alias("r")
    same = " AND ".join(f"l.{name} <=> r.{name}" for name in keys)
    near = "r.moment BETWEEN l.moment AND l.moment + INTERVAL 40 SECONDS"
    return lefts.join(rights, F.expr(f"{same} AND {near}"), "left_outer").select("l.*", "r.text")


def distinct_then_counted(events: DataFrame, _: DataFrame) -> DataFrame:
    kept = marked(events).dropDuplicates(["key", "moment"])
    return totals(kept.groupBy(F.window("moment", "30 seconds"), "key"))


def joined_then_counted(left: DataFrame, right: DataFrame) -> DataFrame:
    lefts = marked(left).withColumn("slot", F.window("moment", "30 seconds"))
    rights = marked(right).select("key", F.window("moment", "30 seconds").alias("slot"))
    pairs = lefts.join(rights, ["key", "slot"])
    return totals(pairs.groupBy(F.window("slot", "1 minute"), "key"))


def lengthen(
    key: tuple[Any, ...], parts: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Count events, keep the newest text, and forget a key without events for a while."""
    events, text = state.get if state.exists else (0, "")
    timed_out = state.hasTimedOut
    if timed_out:
        state.remove()
    else:
        for part in parts:
            events += len(part)
            text = max(part["text"])
        state.update((events, text))
        patience = 30_000 if events % 2 else 150_000
        state.setTimeoutTimestamp(max(state.getCurrentWatermarkMs(), 0) + patience)
    yield pd.DataFrame(
        {"key": [key[0]], "events": [events], "text": [text], "timed_out": [timed_out]}
    )


def grouped_in_pandas(events: DataFrame, _: DataFrame) -> DataFrame:
    return (
        marked(events)
        .groupBy("key")
        .applyInPandasWithState(
            lengthen, GROUP_OUTPUT, GROUP_STATE, "update", GroupStateTimeout.EventTimeTimeout
        )
    )


OPERATOR_JOBS = {
    "aggregation, update": (Job(by_key, "update", shrinks=False), SHAPE),
    "aggregation, complete": (Job(by_key, "complete", shrinks=False), SHAPE),
    "aggregation in hash tables": (Job(by_key_in_hash_tables, "update", shrinks=False), SHAPE),
    "aggregation of objects": (Job(by_moment_as_objects, "complete", shrinks=False), LARGE),
    "aggregation of keys alone": (Job(keys_alone, "update", shrinks=False), SHAPE),
    "aggregation without keys": (Job(overall, "update", shrinks=False), SHAPE),
    "aggregation, append with eviction": (Job(by_window), SHAPE),
    "aggregation, update with eviction": (Job(by_window, "update"), SHAPE),
    "aggregation, complete with watermark": (Job(by_window, "complete", shrinks=False), SHAPE),
    "dropDuplicates": (Job(distinct, shrinks=False), SHAPE),
    "dropDuplicates with eviction": (Job(distinct_marked), SHAPE),
    "dropDuplicatesWithinWatermark": (Job(distinct_within_watermark), SHAPE),
    "session windows": (Job(sessions), SHAPE),
    "inner join": (joined("inner"), JOINED),
    "left outer join": (joined("left_outer"), JOINED),
    "right outer join": (joined("right_outer"), JOINED),
    "full outer join": (joined("full_outer"), JOINED),
    "left semi join": (joined("left_semi"), JOINED),
    "join by keys of many types": (Job(joined_by_many_types, stores=JOIN_STORES), JOINED),
    "applyInPandasWithState": (Job(grouped_in_pandas, "update"), SPARSE),
    "limit": (Job(limited, shrinks=False), SHAPE),
    "dropDuplicates, then aggregation": (Job(distinct_then_counted, stores=TWO_OPERATORS), SHAPE),
    "join, then aggregation": (Job(joined_then_counted, stores=JOIN_BELOW), JOINED),
}
SCALA_JOBS = {
    "flatMapGroupsWithState, event time": ("flatMapped", "EventTime", SPARSE),
    "flatMapGroupsWithState, processing time": ("flatMapped", "ProcessingTime", SCATTERED),
    "mapGroupsWithState, event time": ("mapped", "EventTime", SPARSE),
    "mapGroupsWithState": ("mapped", "None", SHAPE),
}


def all_jobs(spark: SparkSession, provider_jvm: ProviderJvm) -> dict[str, tuple[Job, EventShape]]:
    """The jobs in Python and the jobs in Scala. Adds the Scala classes to the session."""
    operators = provider_jvm.new("GroupStateOperators")
    jar = operators.getClass().getProtectionDomain().getCodeSource().getLocation().getPath()
    spark.sql(f"ADD JAR '{jar}'")
    in_scala = {
        name: (grouped_in_scala(operators, method, timeout), shape)
        for name, (method, timeout, shape) in SCALA_JOBS.items()
    }
    return OPERATOR_JOBS | in_scala


def grouped_in_scala(operators: Any, method: str, timeout: str) -> Job:
    def build(events: DataFrame, _: DataFrame) -> DataFrame:
        output = getattr(operators, method)(marked(events)._jdf, timeout)
        return DataFrame(output, events.sparkSession)

    if timeout != "ProcessingTime":
        return Job(build, "update")
    # A processing-time timeout always leaves one more batch to run.
    settings = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
    return Job(build, "update", compared=with_timeout_to_come, settings=settings)


def with_timeout_to_come(value: Fields) -> Fields:
    """The value with True in place of a timeout in the future, because the exact time depends on
    the clock."""
    return {**value, "timeoutTimestamp": value["timeoutTimestamp"] > time.time() * 1000}
