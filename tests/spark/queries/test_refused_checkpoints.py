"""Queries with Spark's own state in their checkpoint are refused, however a start names the
checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from checkpoint_store.errors import UnsupportedFormatError
from spark_state.errors import ConfigurationError
from spark_state.spark.queries.query_starts import LOCATIONS_KEY, refuse_state_of_spark
from tests.support.applications import streams
from tests.support.provider.adopted_operators import AdoptedJob, EveryState
from tests.support.provider.provider_jobs import configured

pytestmark = pytest.mark.spark

STARTS: dict[str, Callable[[Any, Path], Any]] = {
    "option before": lambda writer, path: writer.option("CheckpointLocation", str(path)).start(),
    "option of the call": lambda writer, path: writer.start(checkpointLocation=str(path)),
    "name before": lambda writer, path: writer.queryName(path.name).start(),
    "name of the call": lambda writer, path: writer.start(queryName=path.name),
    "into a table": lambda writer, path: writer.toTable("rows", queryName=path.name),
}


@pytest.fixture(scope="module")
def stopped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> AdoptedJob:
    job = AdoptedJob(spark, tmp_path_factory.mktemp("on-spark"), EveryState())
    job.feed([("a", 1)])
    job.on_spark()
    return job


@pytest.mark.parametrize("where", STARTS)
def test_they_are_refused_with_the_command_that_takes_the_state_over(
    stopped: AdoptedJob, where: str
) -> None:
    session, path = stopped.spark, stopped.checkpoint
    root = {LOCATIONS_KEY: str(path.parent)} if "option" not in where else {}
    with streams.enabled(session):
        writer = stopped.output().writeStream.format("noop").outputMode("update")
        message = rf"cowstate adopt {path} --apply"
        with configured(session, root), pytest.raises(ConfigurationError, match=message):
            STARTS[where](writer.trigger(availableNow=True), path)


def test_operators_that_a_later_spark_noted_are_refused_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "state/0/_metadata/v3").mkdir(parents=True)
    with pytest.raises(UnsupportedFormatError, match=r"state/0/_metadata in .* version 3"):
        refuse_state_of_spark(str(checkpoint), spark)
