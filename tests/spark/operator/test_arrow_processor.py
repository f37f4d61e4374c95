"""An ArrowStatefulProcessor works in queries: restarts, failures, time, an initial state, rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_state
from spark_state.errors import ConfigurationError
from tests.spark.input.test_time_modes import TimedStream
from tests.support.applications.streams import INPUT_SCHEMA, Stream, random_rows, totals_of
from tests.support.processors.arrow_totals import ArrowTotals, ArrowTotalsWhenIdle
from tests.support.processors.processors import TOTALS_SCHEMA, RunningTotals
from tests.support.provider.provider_jobs import configured

pytestmark = pytest.mark.spark


def in_arrow(df: DataFrame, processor: Any = None, **options: Any) -> DataFrame:
    time_mode = options.pop("time_mode", "None")
    return spark_state.transform_with_state_in_arrow(
        df.groupBy("key"),
        processor or ArrowTotals(),
        TOTALS_SCHEMA,
        "update",
        time_mode,
        name="totals",
        **options,
    )


def test_totals_are_exact_over_a_failure_and_at_other_parallelisms(
    spark: SparkSession, stream: Stream
) -> None:
    for run, parallelism in enumerate((2, 3, 1)):
        with configured(spark, {"spark.cowstate.parallelism": str(parallelism)}):
            for batch in range(2):
                stream.feed(random_rows(10 * run + batch, 200, 30))
            stream.run(in_arrow(stream.source()))
    assert stream.totals() == totals_of(stream.fed)
    assert stream.stored() == totals_of(stream.fed)

    fed = list(stream.fed)
    stream.feed([("key1", -1), ("key2", 1)])
    with pytest.raises(StreamingQueryException, match="a negative value: -1"):
        stream.run(in_arrow(stream.source()))
    assert stream.stored() == totals_of(fed)


def test_a_processor_of_rows_goes_on_with_the_state_of_one_of_arrow(stream: Stream) -> None:
    stream.feed(random_rows(1, 100, 10))
    stream.run(in_arrow(stream.source()))
    stream.feed(random_rows(2, 100, 20))
    stream.run(stream.operator(RunningTotals(), name="totals"))
    assert stream.totals() == totals_of(stream.fed)


def test_an_initial_state_comes_before_the_first_rows(spark: SparkSession, stream: Stream) -> None:
    initial = spark.createDataFrame(
        [("key1", 100, 1_000), ("elsewhere", 7, 70)], TOTALS_SCHEMA
    ).groupBy("key")
    stream.feed([("key1", 1), ("key2", 2)])
    stream.run(in_arrow(stream.source(), initial_state=initial))
    stream.feed([("elsewhere", 3)])
    stream.run(in_arrow(stream.source(), initial_state=initial))
    assert stream.totals() == {"key1": (101, 1_001), "key2": (1, 2), "elsewhere": (8, 73)}


def test_event_time_fires_timers_in_bulk_and_rules_come_first(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = TimedStream(spark, tmp_path)
    rules = tmp_path / "rules"
    rules.mkdir()
    pq.write_table(pa.table({"key": ["a", "b"], "value": [10, 20]}), rules / "1.parquet")
    stream.feed_all(
        (
            [("a", 1_000), ("b", 2_000), ("a", 1_500)],
            [("c", 60_000)],
            [("a", 61_000), ("d", 200_000)],
            [("d", 201_000)],
        )
    )
    weights = spark.readStream.schema(INPUT_SCHEMA).parquet(str(rules))
    operator = in_arrow(
        stream.watermarked(),
        ArrowTotalsWhenIdle(),
        time_mode="EventTime",
        broadcast={"weights": weights},
    )
    stream.run(operator)
    fired = [(key, rows, total) for _, key, rows, total in stream.kept()]
    # The third batch fires timers up to 50 s, after its rows.
    assert sorted(fired) == [("a", 30, 21_000), ("b", 20, 22_000), ("c", 1, 80_000)]


def test_what_cannot_run_is_refused_when_it_is_planned(spark: SparkSession) -> None:
    rows = spark.readStream.format("rate").load().select(F.lit("k").alias("key"), "value")
    with pytest.raises(ConfigurationError, match=r"from ArrowStatefulProcessor, got .*Running"):
        in_arrow(rows, RunningTotals())
    with pytest.raises(ConfigurationError, match=r"from StatefulProcessor, got .*ArrowTotals"):
        spark_state.transform_with_state(
            rows.groupBy("key"), ArrowTotals(), TOTALS_SCHEMA, "update", "None"
        )
    with pytest.raises(ConfigurationError, match=r"an instance of a class .*ArrowTotals"):
        in_arrow(rows, ArrowTotals)
    with pytest.raises(ConfigurationError, match="no method handleBroadcastRows"):
        in_arrow(rows, broadcast={"weights": rows})

    class WithoutInitial(ArrowTotals):
        handleInitialBatch = None

    initial = spark.createDataFrame([("a", 1, 1)], TOTALS_SCHEMA).groupBy("key")
    with pytest.raises(ConfigurationError, match=r"no method handleInitialBatch\(batch, timerVal"):
        in_arrow(rows, WithoutInitial(), initial_state=initial)


def test_a_batch_dataframe_is_run_without_state(spark: SparkSession) -> None:
    df = spark.createDataFrame([("a", 1), ("b", 2), ("a", 3)], INPUT_SCHEMA)
    rows = in_arrow(df).collect()
    assert sorted(tuple(row) for row in rows) == [("a", 2, 4), ("b", 1, 2)]
