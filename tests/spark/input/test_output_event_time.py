"""An output column can be the event time of later operators, as with Spark's own operator.

test_late_rows_of_chains compares windows and operators behind such a column with Spark's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import spark_state
from tests.spark.input.test_time_modes import TimedStream
from tests.support.processors.processors import Processor

pytestmark = pytest.mark.spark

EMITTED = "key string, later timestamp, seen bigint"
BATCHES = (
    [("a", 1), ("b", 50_000)],
    [("a", 60_000), ("a", 70_000)],
    [("b", 100_000), ("a", 59_000)],
    [("b", 120_000)],
)


class EmitsRows(Processor):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            yield Row(key=key[0], later=row.at, seen=timerValues.getCurrentWatermarkInMs())


class EmitsNulls(EmitsRows):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        yield Row(key=key[0], later=None, seen=0)


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> TimedStream:
    return TimedStream(spark, tmp_path)


def emitted(df: DataFrame, column: str = "later", processor: Any = None) -> DataFrame:
    return spark_state.transform_with_state(
        df.groupBy("key"),
        processor or EmitsRows(),
        EMITTED,
        "append",
        "EventTime",
        event_time_column_name=column,
        name="emits",
    )


def test_an_operator_behind_takes_its_watermark_from_the_column(stream: TimedStream) -> None:
    stream.feed_all(BATCHES)
    behind = spark_state.transform_with_state(
        emitted(stream.watermarked()).withColumnRenamed("later", "at").groupBy("key"),
        EmitsRows(),
        EMITTED,
        "update",
        "EventTime",
        name="behind",
    )
    seen = behind.select("key", F.lit(0).cast("long").alias("rows"), F.col("seen").alias("total"))
    stream.run(seen)
    watermarks = {epoch: total for epoch, _, _, total in stream.kept()}
    assert [watermarks[epoch] for epoch in range(4)] == [0, 40_000, 60_000, 90_000]


def test_a_row_that_is_late_already_is_spark_s_error(stream: TimedStream) -> None:
    stream.feed_all(BATCHES[:1])
    with pytest.raises(StreamingQueryException, match="EMITTING_ROWS_OLDER_THAN_WATERMARK"):
        stream.run(emitted(stream.watermarked(), processor=EmitsNulls()), output_mode="append")


@pytest.mark.parametrize(
    ("column", "condition"),
    [
        ("nothing", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ("seen", "EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE"),
    ],
)
def test_a_column_that_cannot_be_event_time_is_spark_s_error(
    stream: TimedStream, column: str, condition: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        emitted(stream.watermarked(), column)
    assert caught.value.getCondition() == condition


def test_without_a_watermark_there_is_no_event_time_to_change(stream: TimedStream) -> None:
    with pytest.raises(AnalysisException) as caught:
        spark_state.transform_with_state(
            stream.timed().groupBy("key"),
            EmitsRows(),
            EMITTED,
            "append",
            "None",
            event_time_column_name="later",
        )
    assert caught.value.getCondition() == "CANNOT_ASSIGN_EVENT_TIME_COLUMN_WITHOUT_WATERMARK"
