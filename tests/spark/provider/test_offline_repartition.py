"""Spark's offline repartitioning does not harm a cowstate checkpoint, or the harm is repaired."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingCheckpointManager

from cowstate.cli.command_line import main
from spark_state import UnsupportedOperationError, configure
from spark_state.spark.provider.provider_class import PROVIDER_KEY
from tests.support.applications.lost_commits import delete
from tests.support.applications.provider_application import totals
from tests.support.applications.streams import Stream, random_rows, totals_of
from tests.support.provider.adoption_jobs import contents
from tests.support.provider.provider_jobs import COWSTATE, HDFS, ROCKSDB, configured
from tests.support.provider.rescaled_jobs import rescaled

pytestmark = pytest.mark.spark


def stopped_query(spark: SparkSession, folder: Path, provider: str) -> Stream:
    """A stopped query with two batches on this provider."""
    stream = Stream(spark, folder)
    with configured(spark, {PROVIDER_KEY: provider}):
        for number in range(2):
            stream.feed(random_rows(number, count=50, keys=10))
        stream.run(totals(stream))
    return stream


def goes_on(stream: Stream) -> bool:
    stream.feed(random_rows(9, count=50, keys=10))
    stream.run(totals(stream))
    return stream.totals() == totals_of(stream.fed)


@pytest.fixture
def manager(spark: SparkSession) -> StreamingCheckpointManager:
    """The manager of a session that was configured for cowstate."""
    configure(SparkSession.Builder())
    return spark._streamingCheckpointManager


def test_a_checkpoint_on_cowstate_is_refused_before_anything_changes(
    spark: SparkSession, manager: StreamingCheckpointManager, tmp_path: Path
) -> None:
    stream = stopped_query(spark, tmp_path, COWSTATE)
    before = contents(stream.checkpoint)
    message = "is on cowstate, and Spark repartitions .* cowstate rescale .* --partitions 5"
    with pytest.raises(UnsupportedOperationError, match=message):
        manager.repartition(str(stream.checkpoint), 5)
    assert contents(stream.checkpoint) == before
    assert goes_on(stream)


def test_other_checkpoints_are_left_to_spark(
    spark: SparkSession, manager: StreamingCheckpointManager, tmp_path: Path
) -> None:
    stream = stopped_query(spark, tmp_path, HDFS)
    with pytest.raises(Py4JJavaError, match="HDFSBackedStateStoreProvider is not supported"):
        manager.repartition(str(stream.checkpoint), 5)
    with pytest.raises(Py4JJavaError, match="nowhere"):
        manager.repartition(str(tmp_path / "nowhere"), 5)


def test_a_repartitioning_that_failed_is_undone_by_deleting_its_batch(
    spark: SparkSession,
    manager: StreamingCheckpointManager,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = stopped_query(spark, tmp_path, COWSTATE)
    with pytest.raises(Py4JJavaError, match="UNSUPPORTED_PROVIDER"):
        manager._jmanager.repartition(str(stream.checkpoint), 5, True)
    with pytest.raises(StreamingQueryException, match="UNFINISHED_REPARTITION"):
        stream.run(totals(stream))
    assert main(["adopt", str(stream.checkpoint), "--to", "hdfs"]) == 2
    assert "Delete this file and offsets/.2.crc" in capsys.readouterr().err
    delete(stream.checkpoint / "offsets" / "2")
    assert goes_on(stream)


def test_state_that_spark_has_repartitioned_is_adopted_and_rescaled_again(
    spark: SparkSession, manager: StreamingCheckpointManager, tmp_path: Path
) -> None:
    stream = stopped_query(spark, tmp_path, ROCKSDB)
    manager.repartition(str(stream.checkpoint), 5)
    assert main(["adopt", str(stream.checkpoint), "--apply", "--force"]) == 0
    rescaled(stream.checkpoint, 3)
    assert goes_on(stream)
