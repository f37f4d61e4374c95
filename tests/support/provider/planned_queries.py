"""Queries whose plans the provider changes, and access to the plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from spark_state.spark.provider.provider_class import PROVIDER_KEY
from tests.support.applications.streams import Stream
from tests.support.provider.provider_jobs import COWSTATE, THROUGH_MANAGER, Options

ON_COWSTATE = {**THROUGH_MANAGER, PROVIDER_KEY: COWSTATE}
BATCHES = 3
Build = Callable[[Stream], DataFrame]


def texts(stream: Stream) -> DataFrame:
    longest = F.max(F.repeat("key", F.col("value").cast("int") % 3)).alias("longest")
    return stream.source().groupBy("key").agg(longest)


def lists(stream: Stream) -> DataFrame:
    return stream.source().groupBy("key").agg(F.collect_list("value").alias("values"))


def overall(stream: Stream) -> DataFrame:
    return stream.source().groupBy().agg(F.sum("value").alias("total"))


def distinct(stream: Stream) -> DataFrame:
    return stream.source().dropDuplicates(["key"])


def with_moments(stream: Stream) -> DataFrame:
    moments = stream.source().withColumn("moment", F.timestamp_seconds(86400 + F.col("value")))
    return moments.withWatermark("moment", "1 second")


def windows(stream: Stream) -> DataFrame:
    return with_moments(stream).groupBy(F.window("moment", "10 seconds"), "key").count()


def sessions(stream: Stream) -> DataFrame:
    return with_moments(stream).groupBy(F.session_window("moment", "3 seconds"), "key").count()


def distinct_moments(stream: Stream) -> DataFrame:
    return with_moments(stream).dropDuplicates(["key", "moment"])


def distinct_within(stream: Stream) -> DataFrame:
    return with_moments(stream).dropDuplicatesWithinWatermark(["key"])


def until_timeout(
    key: tuple[str], parts: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Keep a group for a second after its last row; keep groups with an `x` in the key for ever."""
    if state.hasTimedOut:
        state.remove()
    else:
        last = max(part["moment"].max() for part in parts)
        state.update((1,))
        if "x" not in key[0]:
            state.setTimeoutTimestamp(int(last.timestamp() * 1000) + 1000)
    yield pd.DataFrame({"key": [key[0]]})


def groups_with_timeout(stream: Stream) -> DataFrame:
    groups = with_moments(stream).groupBy("key")
    timeout = GroupStateTimeout.EventTimeTimeout
    return groups.applyInPandasWithState(until_timeout, "key string", "one int", "update", timeout)


def joined(stream: Stream, how: str = "inner") -> DataFrame:
    """A join with several values per key, where a row meets rows at most five seconds earlier or
    later."""
    left, right = with_moments(stream).alias("l"), with_moments(stream).alias("r")
    return left.join(right, F.expr(f"l.key = r.key AND {apart('r')}"), how).select("l.key")


def joined_by_key(stream: Stream) -> DataFrame:
    return stream.source().join(stream.source(), "key").select("key")


def joined_twice(stream: Stream) -> DataFrame:
    left, middle, right = (with_moments(stream).alias(name) for name in "lmr")
    first = left.join(middle, F.expr(f"l.key = m.key AND {apart('m')}"))
    return first.join(right, F.expr(f"l.key = r.key AND {apart('r')}")).select("l.key")


def apart(other: str) -> str:
    """The condition that a row of another side is at most five seconds apart."""
    around = "l.moment - INTERVAL 5 SECONDS AND l.moment + INTERVAL 5 SECONDS"
    return f"{other}.moment BETWEEN {around}"


def outer_joined(stream: Stream) -> DataFrame:
    return joined(stream, "full_outer")


def joined_by_moment(stream: Stream) -> DataFrame:
    return with_moments(stream).join(with_moments(stream), ["key", "moment"]).select("key")


def stream_of_moments(spark: SparkSession, folder: Path, settings: Options = ON_COWSTATE) -> Stream:
    """A stream whose batches lie 100 seconds apart."""
    stream = Stream(spark, folder, settings)
    for batch in range(BATCHES):
        stream.feed([(f"key{n % 40}", 100 * batch + n % 7) for n in range(400)])
    return stream


def stream_of_lone_keys(
    spark: SparkSession, folder: Path, settings: Options = ON_COWSTATE
) -> Stream:
    """A stream like `stream_of_moments`, in which most keys have one row per batch, and some keys
    several."""
    stream = Stream(spark, folder, settings)
    for batch in range(BATCHES):
        keys = (f"{batch}-{n if n < 300 else n % 40}" for n in range(400))
        stream.feed([(key, 100 * batch + n % 7) for n, key in enumerate(keys)])
    return stream


def last_plan(query: StreamingQuery) -> Any:
    return query._jsq.streamingQuery().lastExecution().executedPlan()


def metrics_of(plan: Any, operator: str, metric: str) -> list[int]:
    """The metric of each operator with the name `operator` in a plan."""
    children = [plan.children().apply(place) for place in range(plan.children().size())]
    below = [count for child in children for count in metrics_of(child, operator, metric)]
    if plan.nodeName() != operator:
        return below
    return [plan.metrics().apply(metric).value(), *below]
