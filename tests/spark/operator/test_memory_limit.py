"""Queries with a small memory limit process larger batches, and report state that does not fit."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

import spark_state
from tests.support.processors.processors import Processor
from tests.support.provider.provider_jobs import configured
from tests.support.tables.table_jobs import run_to_the_end

pytestmark = pytest.mark.spark

ROWS, KEYS, BATCHES = 40_000, 700, 2
INPUT = "key string, value long, text string"
OUTPUT = "key string, rows long, total long, characters long"
LIMIT = {"spark.cowstate.maxMemoryMB": "64", "spark.cowstate.parallelism": "1"}


class RowSums(Processor):
    """A processor that emits Row(key, rows, total, characters) of all rows of a key so far."""

    def init(self, handle: Any) -> None:
        self._sums = handle.getValueState("sums", "rows long, total long, characters long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        count, total, characters = self._sums.get() or (0, 0, 0)
        for row in rows:
            count, total, characters = count + 1, total + row.value, characters + len(row.text)
        self._sums.update((count, total, characters))
        yield Row(key=key[0], rows=count, total=total, characters=characters)


class KeepsTexts(RowSums):
    """A processor that keeps a long text for each row."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self._texts = handle.getMapState("texts", "value long", "text string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        seen = [*rows]
        for row in seen:
            self._texts.updateValue((row.value,), (row.text + str(row.value),))
        yield from super().handleInputRows(key, iter(seen), timerValues)


class KeepsOneText(RowSums):
    """A processor that keeps a long text for each key: 8 MB in all."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self._text = handle.getValueState("text", "text string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        seen = [*rows]
        self._text.update((f"{key[0]:<11000}",))
        yield from super().handleInputRows(key, iter(seen), timerValues)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with batches of about 44 MB each."""
    folder = tmp_path_factory.mktemp("input")
    for batch in range(BATCHES):
        numbers = range(batch * ROWS, batch * ROWS + ROWS)
        columns = {
            "key": [f"key {number * 7_919 % KEYS}" for number in numbers],
            "value": [*numbers],
            "text": ["x" * (1_000 + number % 200) for number in numbers],
        }
        pq.write_table(pa.table(columns), folder / f"{batch}.parquet")
    return folder


def operator(spark: SparkSession, folder: Path, processor: StatefulProcessor) -> DataFrame:
    source = spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).parquet(str(folder))
    return spark_state.transform_with_state(
        source.groupBy("key"), processor, OUTPUT, "update", "None"
    )


def run(output: DataFrame, tmp_path: Path) -> dict[str, Row]:
    """The last output of each key."""
    last: dict[str, Row] = {}

    def keep(batch: DataFrame, _: int) -> None:
        last.update({row.key: row for row in batch.collect()})

    writer = output.writeStream.foreachBatch(keep).outputMode("update").trigger(availableNow=True)
    run_to_the_end(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start())
    return last


def in_batch(spark: SparkSession, folder: Path) -> dict[str, Row]:
    """The expected result, computed by Spark in batch."""
    sums = (
        spark.read.schema(INPUT)
        .parquet(str(folder))
        .groupBy("key")
        .agg(
            F.count("*").alias("rows"),
            F.sum("value").alias("total"),
            F.sum(F.length("text")).alias("characters"),
        )
    )
    return {row.key: row for row in sums.collect()}


@pytest.mark.parametrize("chosen", ["heap", "rocksdb"])
def test_batches_larger_than_the_memory_come_to_what_a_batch_computation_does(
    spark: SparkSession, folder: Path, tmp_path: Path, chosen: str
) -> None:
    settings = {
        **LIMIT,
        "spark.cowstate.backend": chosen,
        "spark.cowstate.rocksdb.maxMemoryMB": "16",
    }
    with configured(spark, settings):
        last = run(operator(spark, folder, RowSums()), tmp_path)
    assert last == in_batch(spark, folder)


def test_a_state_that_does_not_fit_is_refused_and_goes_on_in_rocksdb(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    with configured(spark, LIMIT):
        output = operator(spark, folder, KeepsTexts())
        with pytest.raises(StreamingQueryException) as caught:
            run(output, tmp_path)
    message = str(caught.value)
    assert "MemoryLimitError" in message
    assert "spark.cowstate.maxMemoryMB is 64, of which state may take 32.0 MiB" in message
    assert "set spark.cowstate.backend to rocksdb" in message
    with configured(
        spark,
        {
            **LIMIT,
            "spark.cowstate.backend": "rocksdb",
            "spark.cowstate.maxMemoryMB": "512",
        },
    ):
        assert run(operator(spark, folder, KeepsTexts()), tmp_path) == in_batch(spark, folder)


def test_a_host_that_is_killed_says_that_it_may_have_been_for_memory(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    class Killed(RowSums):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
            os.kill(os.getpid(), signal.SIGKILL)
            yield from ()

    with configured(spark, LIMIT), pytest.raises(StreamingQueryException) as caught:
        run(operator(spark, folder, Killed()), tmp_path)
    message = str(caught.value)
    assert "died in epoch 0 (ended by SIGKILL" in message
    assert "spark.cowstate.maxMemoryMB of each host is 64" in message


def test_queries_that_ended_leave_their_memory_to_the_next_ones(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    """State may take 32 MiB. Two queries fill the limit, with the undo data of their last
    epochs."""
    expected = in_batch(spark, folder)
    with configured(spark, LIMIT):
        for number in range(4):
            query = tmp_path / f"query {number}"
            assert run(operator(spark, folder, KeepsOneText()), query) == expected
