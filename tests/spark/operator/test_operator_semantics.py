"""A processor sees and emits the same as in Spark's own runner of StatefulProcessors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, Row, SparkSession

import spark_state
from tests.support.applications.streams import Stream, random_rows, totals_of
from tests.support.processors.processors import TOTALS_SCHEMA, Processor, RunningTotals
from tests.support.provider.provider_jobs import configured

pytestmark = pytest.mark.spark

EVERY_TYPE = (
    "flag boolean, tiny tinyint, small smallint, number int, big bigint, single float, "
    "double double, text string, raw binary, amount decimal(12,3), day date, moment timestamp, "
    "wall timestamp_ntz, tags array<string>, sizes map<string,int>, nested struct<x:int,y:string>"
)
VALUES = (
    "true, 1Y, 2S, 3, 4L, float(0.1), 0.2D, 'täxt', X'00ff', 12.345BD, date'2020-02-29', "
    "timestamp'2020-07-01 12:30:00.123456', timestamp_ntz'2020-07-01 12:30:00.123456', "
    "array('a', null), map('s', 1), named_struct('x', 1, 'y', 'z')"
)


def every_type_stream(spark: SparkSession, folder: Path, epochs: int) -> DataFrame:
    aliases = [part.split()[0] for part in EVERY_TYPE.split(", ")]
    row = spark.sql(f"select inline(array(struct('k', {VALUES})))").toDF("key", *aliases)
    for epoch in range(epochs):
        row.coalesce(1).write.mode("append").parquet(str(folder / f"part={epoch}"))
    reader = spark.readStream.schema(row.schema).option("maxFilesPerTrigger", 1)
    return reader.parquet(*[str(folder / "*")])


class RemembersRows(Processor):
    """A processor that keeps the previous epoch's row as state, and emits the row that it kept."""

    def init(self, handle: Any) -> None:
        self._last = handle.getValueState("last", EVERY_TYPE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        ((_, *values),) = rows
        yield Row(before=repr(self._last.get()))
        self._last.update(tuple(values))


def test_values_of_every_type_come_back_the_same_resident_and_restored(
    stream: Stream, tmp_path: Path
) -> None:
    seen: list[str] = []
    for parallelism, epochs in (("2", 2), ("3", 1)):
        df = every_type_stream(stream.spark, tmp_path / "types", epochs)
        with configured(stream.spark, {"spark.cowstate.parallelism": parallelism}):
            output = spark_state.transform_with_state(
                df.groupBy("key"), RemembersRows(), "before string", "append", "None"
            )
            stream.run(output, lambda batch, _: seen.extend(r.before for r in batch.collect()))
    nothing, resident, restored = seen
    assert nothing == "None"
    assert restored == resident
    assert resident.startswith("(True, 1, 2, 3, 4, 0.10000000149011612, 0.2, 'täxt', b'\\x00\\xff'")
    assert "Row(x=1, y='z')" in resident


class SeesTheRow(Processor):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            times = (
                timerValues.getCurrentProcessingTimeInMs(),
                timerValues.getCurrentWatermarkInMs(),
            )
            yield Row(key=repr(key), row=repr(row), times=repr(times), kind=type(key).__name__)


def test_a_processor_sees_keys_rows_and_times_as_spark_shows_them(
    stream: Stream, tmp_path: Path
) -> None:
    spark = stream.spark
    df = every_type_stream(spark, tmp_path / "types", epochs=1)
    schema = "key string, row string, times string, kind string"
    provider = "spark.sql.streaming.stateStore.providerClass"
    package = "org.apache.spark.sql.execution.streaming.state"
    spark.conf.set(provider, f"{package}.RocksDBStateStoreProvider")
    grouped = df.groupBy("text", "day", "moment")
    try:
        seen = {
            "spark": grouped.transformWithState(SeesTheRow(), schema, "append", "None"),
            "cowstate": spark_state.transform_with_state(
                grouped, SeesTheRow(), schema, "append", "None"
            ),
        }
        for name, output in seen.items():
            query = (
                output.writeStream.format("parquet")
                .option("path", str(tmp_path / name))
                .option("checkpointLocation", str(tmp_path / f"{name}-checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
    finally:
        spark.conf.unset(provider)
    assert_df_equality(
        spark.read.parquet(str(tmp_path / "cowstate")), spark.read.parquet(str(tmp_path / "spark"))
    )


def test_a_batch_dataframe_starts_every_key_without_state(spark: SparkSession) -> None:
    rows = random_rows(1, count=500, keys=50)
    df = spark.createDataFrame(rows, "key string, value bigint")
    output = spark_state.transform_with_state(
        df.groupBy("key"), RunningTotals(), TOTALS_SCHEMA, "update", "None"
    )
    for _ in range(2):
        totals = {row.key: (row.rows, row.total) for row in output.collect()}
        assert totals == totals_of(rows)


def test_the_log_of_the_driver_has_the_number_of_subtasks(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = configured(stream.spark, {"spark.cowstate.parallelism": "3"})
    with chosen, caplog.at_level(logging.INFO, "spark_state"):
        stream.operator()
    assert "operator 'RunningTotals' has 3 subtasks in each batch" in caplog.text
