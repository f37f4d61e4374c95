"""Queries with named sources and sinks work, although Spark writes newer log versions for names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from checkpoint_store.state_reader import open_store
from cowstate.cli.command_line import main
from tests.support.provider.provider_jobs import (
    COWSTATE,
    HDFS,
    STATE_STORE,
    THROUGH_MANAGER,
    configured,
)
from tests.support.provider.rescaled_jobs import rescaled, revert
from tests.support.sessions.spark_versions import needs_spark_4_3

pytestmark = [
    pytest.mark.spark,
    needs_spark_4_3("Spark 4.2 writes no names of sources into its logs"),
]

EVOLUTION = "spark.sql.streaming.queryEvolution"
SETTINGS = {
    **THROUGH_MANAGER,
    f"{EVOLUTION}.enableSourceEvolution": "true",
    f"{EVOLUTION}.enableSinkEvolution": "true",
    "spark.sql.shuffle.partitions": "2",
}
NEWEST = {"offsets": 2, "commits": 3}


@dataclass
class NamedQuery:
    """A query that counts the keys of two named sources, with a named sink."""

    spark: SparkSession
    folder: Path
    settings: Mapping[str, str]
    batches: int = 0

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def run(self) -> None:
        """Run a batch with a row of each source."""
        for name in ("left_one", "right_two"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            file = self.folder / name / f"{self.batches}.json"
            file.write_text("\n".join(json.dumps({"key": key}) for key in ("a", name)))
        self.batches += 1
        with self._session():
            left, right = (self._source(name) for name in ("left_one", "right_two"))
            counts = left.union(right).groupBy("key").agg(F.count("*").alias("rows"))
            writer: Any = counts.writeStream.option("checkpointLocation", str(self.checkpoint))
            writer = writer.format("noop").outputMode("update").trigger(availableNow=True)
            writer._jwrite.name("my_sink")
            writer.start().awaitTermination()

    def _session(self) -> AbstractContextManager[None]:
        return configured(self.spark, self.settings)

    def _source(self, name: str) -> Any:
        reader = self.spark.readStream.name(name).schema("key string")
        return reader.json(str(self.folder / name))

    def assert_counts(self) -> None:
        """Assert the state after the last batch, read without Spark."""
        rows = open_store(str(self.checkpoint)).read().to_pylist()
        counts = {row["key"]: row["count"] for row in rows}
        batches = self.batches
        assert counts == {"a": 2 * batches, "left_one": batches, "right_two": batches}


def newest(checkpoint: Path, log: str) -> Path:
    return checkpoint / log / str(max(int(file.name) for file in (checkpoint / log).glob("[0-9]*")))


@pytest.fixture(params=["1", "2"])
def query(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> NamedQuery:
    """A query that ran two batches. The providers of Spark and of cowstate have one format each."""
    provider = HDFS if request.param == "1" else COWSTATE
    query = NamedQuery(
        spark,
        tmp_path / "run",
        {
            **SETTINGS,
            f"{STATE_STORE}.providerClass": provider,
            f"{STATE_STORE}.checkpointFormatVersion": request.param,
        },
    )
    query.run()
    query.run()
    for log, version in NEWEST.items():
        assert newest(query.checkpoint, log).read_text().startswith(f"v{version}\n")
    return query


def test_adopt_rescale_and_readers_read_the_versions_of_their_logs(
    query: NamedQuery, capsys: pytest.CaptureFixture[str]
) -> None:
    if HDFS in query.settings.values():
        assert main(["adopt", str(query.checkpoint), "--apply", "--force"]) == 0
        query.run()
    rescaled(query.checkpoint, 3)
    query.assert_counts()
    query.run()
    query.assert_counts()
    rescaled(query.checkpoint, 2)
    revert(query.checkpoint)
    query.run()
    query.assert_counts()
    for log, version in NEWEST.items():
        assert newest(query.checkpoint, log).read_text().startswith(f"v{version}\n")
    assert "sinkMetadataMap" in newest(query.checkpoint, "commits").read_text()


def test_the_provider_reads_the_same_versions_of_the_offset_log(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark refuses unknown versions itself, but a later Spark may know more versions."""
    jvm: Any = spark._jvm
    package = jvm.org.apache.spark.sql.execution.streaming.state.cowstate
    partitions = package.checkpoints.QueryPartitions(
        str(tmp_path / "state"), spark._jsparkSession.sessionState().newHadoopConf()
    )
    (tmp_path / "offsets").mkdir()
    content = json.dumps({"conf": {"spark.sql.shuffle.partitions": "5"}})
    entry = tmp_path / "offsets" / "3"
    for version in ("v1", "v2"):
        entry.write_text(f"{version}\n{content}\nleft_one:0")
        assert partitions.at(4) == 5
    for version, told in (
        ("v3", "offsets/3 has version 3 of Spark's offset log, .* up to version 2: upgrade"),
        ("v0", "offsets/3 is not an entry of an offset log"),
        ("", "offsets/3 is not an entry of an offset log"),
    ):
        entry.write_text(f"{version}\n{content}")
        with pytest.raises(Py4JJavaError, match=told):
            partitions.at(4)
