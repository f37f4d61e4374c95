"""A query survives a kill of its operator's clock, a Python process of a streaming source."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.fault.applications.test_killed_ledgers import check, feed, run_to_the_end
from tests.support.applications.ledger_job import ledger
from tests.support.provider.provider_jobs import configured

pytestmark = [pytest.mark.spark, pytest.mark.fault]

PATIENCE_SECONDS = 120
FILES = 3
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
    fed = feed(spark, tmp_path, FILES)
    # A killed clock may leave its token in the store.
    with configured(spark, {"spark.cowstate.store": (tmp_path / "store").as_uri()}):
        run_until_the_clocks_are_killed(spark, tmp_path)
    check(run_to_the_end(spark, tmp_path), fed, FILES)


def run_until_the_clocks_are_killed(spark: SparkSession, folder: Path) -> None:
    stream, output = ledger(spark, folder)
    query = (
        output.writeStream.foreachBatch(stream.keep)
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
