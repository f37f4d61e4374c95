"""Queries whose state is in mapped files of a local directory."""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
from tests.support.provider_jobs import configured, maintenance_of
from tests.support.streams import Row, Stream, random_rows, totals_of

pytestmark = pytest.mark.spark
STATE_STORE = "spark.sql.streaming.stateStore"
BACKEND = f"{STATE_STORE}.cowstate.backend"
LOCAL_DIRECTORY = f"{STATE_STORE}.cowstate.localDirectory"
MAX_MEMORY = f"{STATE_STORE}.cowstate.maxMemoryMB"


class Query:
    """A count and a sum by key, started anew for each call, over all files that were fed before."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self.stream = Stream(spark, folder, settings={})
        self.fed: list[Row] = []

    def feed(self, *batches: list[Row]) -> None:
        for rows in batches:
            self.stream.feed(rows)
            self.fed += rows

    def run(self, settings: dict[str, str]) -> StreamingQuery:
        provider = {PROVIDER_KEY: PROVIDER_CLASS, f"{STATE_STORE}.maintenanceInterval": "100ms"}
        with configured(self._spark, provider | settings), maintenance_of(self._spark):
            query: StreamingQuery = self.stream.run(self._totals())
            return query

    def _totals(self) -> DataFrame:
        aggregates = F.count("*").alias("rows"), F.sum("value").alias("total")
        return self.stream.source().groupBy("key").agg(*aggregates)

    def assert_exact(self) -> None:
        """What was put out last of each key is what a batch computation of all rows gives."""
        assert self.stream.totals() == totals_of(self.fed)


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Query:
    return Query(spark, tmp_path)


def metrics_of(query: StreamingQuery) -> dict[str, Any]:
    assert query.lastProgress is not None
    (operator,) = query.lastProgress["stateOperators"]
    return {"memory": operator["memoryUsedBytes"], **operator["customMetrics"]}


def wide_rows(seed: int, keys: int) -> list[Row]:
    """A row for each key, whose names are long."""
    chance = random.Random(seed)
    return [(f"{key:0200d}", chance.randrange(100)) for key in range(keys)]


def test_a_query_changes_its_backend_at_every_start(query: Query) -> None:
    for number, backend in enumerate(["heap", "disk", "DISK", "heap", "disk"]):
        query.feed(*(random_rows(10 * number + place, count=200, keys=90) for place in range(3)))
        metrics = metrics_of(query.run({BACKEND: backend}))
        assert (metrics["cowstateMappedBytes"] > 0) == (backend != "heap")
        query.assert_exact()


def test_a_state_on_disk_needs_no_room_in_the_heap(query: Query) -> None:
    query.feed(wide_rows(1, 20_000), wide_rows(2, 20_000), wide_rows(3, 20_000))
    settings = {MAX_MEMORY: "1", f"{STATE_STORE}.minDeltasForSnapshot": "2"}
    with pytest.raises(StreamingQueryException, match=f"Set {BACKEND} to disk"):
        query.run(settings)
    metrics = metrics_of(query.run({**settings, BACKEND: "disk"}))
    query.assert_exact()
    assert metrics["memory"] < 1 << 20 < 5 << 20 < metrics["cowstateMappedBytes"]


def test_an_unknown_backend_is_refused_with_those_that_there_are(query: Query) -> None:
    query.feed(random_rows(1, count=50, keys=9))
    with pytest.raises(StreamingQueryException, match=f"{BACKEND} is .ram.; allowed"):
        query.run({BACKEND: "ram"})
    query.run({BACKEND: "heap"})
    query.assert_exact()


def test_a_local_directory_that_is_not_there_is_named(query: Query, tmp_path: Path) -> None:
    query.feed(random_rows(1, count=50, keys=9))
    missing = tmp_path / "missing"
    on_disk = {BACKEND: "disk", LOCAL_DIRECTORY: str(missing)}
    with pytest.raises(StreamingQueryException, match=f"cannot be kept in {missing}.*{LOCAL_DIRECTORY}"):
        query.run(on_disk)
    missing.mkdir()
    query.run(on_disk)
    query.assert_exact()
    assert not [*missing.iterdir()], "the files have no names"


@contextmanager
def files_of_at_most(spark: SparkSession, most_bytes: int) -> Iterator[None]:
    """For a while, the JVM cannot write more than that to a file: a disk that is full."""
    gateway: Any = spark.sparkContext._gateway
    process = gateway.jvm.java.lang.ProcessHandle.current().pid()
    soft, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_fails_the_batch_and_loses_nothing(spark: SparkSession, query: Query) -> None:
    query.feed(wide_rows(1, 5_000))
    on_disk = {BACKEND: "disk"}
    query.run(on_disk)
    query.feed(wide_rows(2, 40_000))
    with (
        files_of_at_most(spark, 3 << 20),
        pytest.raises(StreamingQueryException, match="the state before it is in the checkpoint"),
    ):
        query.run(on_disk)
    query.run(on_disk)
    query.assert_exact()
