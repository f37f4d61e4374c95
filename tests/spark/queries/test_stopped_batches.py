"""A stop of a query, or a cancelled job, ends an action in `foreachBatch` with the right result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_state.spark.provider.session_configuration import configure

pytestmark = pytest.mark.spark

Action = Callable[[DataFrame], None]


@pytest.fixture(autouse=True)
def configured(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change `foreachBatch` as `configure` does, and undo the change after the test."""
    monkeypatch.setattr(DataStreamWriter, "foreachBatch", DataStreamWriter.foreachBatch)
    for _ in range(2):
        configure(SparkSession.Builder())


def write(batch: DataFrame) -> None:
    batch.write.format("noop").mode("overwrite").save()


def collect(batch: DataFrame) -> None:
    batch.groupBy("value").count().collect()


def write_and_reword(batch: DataFrame) -> None:
    try:
        write(batch)
    except Exception as error:
        raise RuntimeError("the batch could not be written") from error


def started(spark: SparkSession, folder: Path, action: Action) -> StreamingQuery:
    """Start a query, and wait for the action of its first batch. The action would take minutes."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load()
    slow = F.expr("reflect('java.lang.Thread', 'sleep', 300000L)")
    began = threading.Event()

    def run(batch: DataFrame, _: int) -> None:
        began.set()
        action(batch.withColumn("slow", slow).where("slow IS NULL OR length(slow) < 99"))

    writer = rows.writeStream.foreachBatch(run)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    assert began.wait(60)
    tracker = spark.sparkContext.statusTracker()
    while not tracker.getActiveStageIds():
        assert not query.awaitTermination(1)
    return query


@pytest.mark.parametrize("action", [write, collect, write_and_reword])
def test_a_query_that_is_stopped_in_an_action_ends_as_a_stopped_one(
    spark: SparkSession, tmp_path: Path, action: Action
) -> None:
    query = started(spark, tmp_path, action)
    query.stop()
    assert query.status["message"] == "Stopped"
    assert query.exception() is None


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (write, "cancellation of all jobs"),
        (write_and_reword, "RuntimeError: the batch could not be written"),
    ],
)
def test_a_job_that_somebody_cancels_fails_the_query_with_the_whole_error(
    spark: SparkSession, tmp_path: Path, action: Action, words: str
) -> None:
    query = started(spark, tmp_path, action)
    spark.sparkContext.cancelAllJobs()
    with pytest.raises(StreamingQueryException, match=words) as caught:
        query.awaitTermination(60)
    assert "Traceback" in str(caught.value)


def test_other_errors_come_whole(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load()

    def fail(batch: DataFrame, _: int) -> None:
        batch.select(F.raise_error("a value is bad")).collect()

    writer = rows.writeStream.foreachBatch(fail)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(StreamingQueryException, match=r"(?s)in fail.*a value is bad"):
        query.awaitTermination(60)
