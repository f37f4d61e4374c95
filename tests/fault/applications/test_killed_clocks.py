"""A query survives a kill of its operator's clock, a Python process of a streaming source."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from checkpoint_store.state_reader import open_store
from tests.fault.applications.test_timers_exactly_once import planned, told_of
from tests.spark.input.test_time_modes import TimedStream
from tests.support.provider.provider_jobs import configured

pytestmark = [pytest.mark.spark, pytest.mark.fault]

PATIENCE_SECONDS = 120
RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"


def clocks_of(spark: SparkSession) -> list[psutil.Process]:
    """The clock processes that the session's JVM has started."""
    assert spark._jvm is not None
    jvm = psutil.Process(int(spark._jvm.java.lang.ProcessHandle.current().pid()))
    clocks = []
    for process in jvm.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # the process has ended meanwhile
            if RUNNER in " ".join(process.cmdline()):
                clocks.append(process)
    return clocks


def test_the_query_fails_as_with_any_source_and_a_restart_goes_on_exactly(
    spark: SparkSession, tmp_path: Path
) -> None:
    # A killed clock may leave its token in the store.
    with configured(spark, {"spark.cowstate.store": (tmp_path / "store").as_uri()}):
        check_that_timers_fire_once_although_clocks_are_killed(spark, tmp_path)


def check_that_timers_fire_once_although_clocks_are_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = TimedStream(spark, tmp_path)
    stream.feed_all([[("a", 1), ("b", 2)], [("a", 3)]])
    query = (
        planned(stream, "ProcessingTime", 50)
        .writeStream.foreachBatch(stream.keep)
        .outputMode("update")
        .option("checkpointLocation", str(stream.checkpoint))
        .start()
    )
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while stream.committed() < 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        clocks = clocks_of(spark)
        assert clocks
        for process in clocks:
            process.kill()
        with pytest.raises(StreamingQueryException):
            query.awaitTermination(PATIENCE_SECONDS)
    finally:
        query.stop()
    stream.feed_all([[("b", 4), ("c", 5)]])
    for _ in range(2):
        stream.run(planned(stream, "ProcessingTime", 50))
        time.sleep(0.6)
    stream.run(planned(stream, "ProcessingTime", 50))
    told = told_of(stream)
    assert {key: row["rows"] for key, row in told.items()} == {"a": 2, "b": 2, "c": 1}
    for row in told.values():
        assert row["registered"] == row["deleted"] + row["fired"]
        assert row["closed"] == row["rows"]
    assert open_store(str(stream.store()), state="open").read().num_rows == 0
