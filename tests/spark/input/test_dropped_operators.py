"""Steps that drop all rows of an operator do not prevent the operator's epochs.

Spark runs the operator all the same, or refuses the query at its start. Otherwise a batch would be
committed without the epoch of the operator.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_state.errors import ConfigurationError
from tests.support.applications.streams import Stream, random_rows, totals_of
from tests.support.provider.provider_jobs import configured

pytestmark = pytest.mark.spark

ADAPTIVE = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.streaming.stateless.enabled": "true",
}


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    stream = Stream(spark, tmp_path)
    stream.feed(random_rows(1, count=60, keys=20))
    return stream


def run_into_table(stream: Stream, output: DataFrame) -> None:
    writer = output.writeStream.format("parquet").outputMode("append")
    query = (
        writer.option("checkpointLocation", str(stream.checkpoint))
        .option("path", str(stream.folder / "table"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def empty_file(stream: Stream) -> DataFrame:
    """Read a file without matching rows; only a task notices that there are no rows."""
    rows = stream.spark.createDataFrame([("a", 1)], "key string, other int")
    rows.filter("other > 5").write.mode("overwrite").parquet(str(stream.folder / "empty"))
    return stream.spark.read.parquet(str(stream.folder / "empty"))


DROPPING: dict[str, Callable[[Stream, DataFrame], DataFrame]] = {
    "a join with nothing": lambda stream, rows: rows.join(empty_file(stream), "key"),
    "a condition": lambda stream, rows: rows.filter("1 = 2"),
    "a condition of time": lambda stream, rows: rows.filter(
        "current_timestamp() < timestamp'2020-01-01'"
    ),
}


@pytest.mark.parametrize("dropping", DROPPING)
@pytest.mark.parametrize("adaptive", [False, True])
def test_an_operator_runs_though_a_later_step_drops_all_rows(
    stream: Stream, dropping: str, adaptive: bool
) -> None:
    with configured(stream.spark, ADAPTIVE if adaptive else {}):
        run_into_table(stream, DROPPING[dropping](stream, stream.operator()))
    assert stream.stored() == totals_of(stream.fed)


def test_a_query_whose_operator_spark_would_leave_out_is_refused(stream: Stream) -> None:
    with pytest.raises(ConfigurationError, match=r"'RunningTotals'.* limit of 0"):
        run_into_table(stream, stream.operator().limit(0).select("*"))
