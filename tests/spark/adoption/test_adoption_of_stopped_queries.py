"""`cowstate adopt` reports, refuses and changes the right things in a stopped query's
checkpoint."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cowstate.cli.command_line import main
from tests.support.applications.lost_commits import delete
from tests.support.applications.streams import Stream
from tests.support.provider.adoption_jobs import (
    AGGREGATION,
    Adopted,
    copied,
    refused,
    rewrite,
)
from tests.support.provider.provider_jobs import (
    HDFS,
    ROCKSDB,
    THROUGH_MANAGER,
)

pytestmark = pytest.mark.spark

StoppedOn = Callable[[str], Path]


@pytest.fixture(scope="module")
def stopped_on(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> StoppedOn:
    """Build the checkpoint of a query that ran on a provider; each test gets a copy."""

    @cache
    def checkpoint(provider: str) -> Path:
        folder = tmp_path_factory.mktemp("stopped")
        query = Adopted.new(spark, AGGREGATION, provider, folder, THROUGH_MANAGER)
        query.go_on(3)
        return query.checkpoint

    return checkpoint


class TestStoppedQuery:
    @pytest.fixture(params=[HDFS, ROCKSDB], ids=["hdfs", "rocksdb"])
    def checkpoint(
        self, stopped_on: StoppedOn, tmp_path: Path, request: pytest.FixtureRequest
    ) -> Path:
        return copied(stopped_on(request.param), tmp_path / "checkpoint")

    def test_a_dry_run_says_what_it_found(
        self, checkpoint: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["adopt", str(checkpoint), "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["provider"] in (HDFS, ROCKSDB)
        assert (report["last_planned_batch"], report["last_committed_batch"]) == (3, 3)
        (operator,) = report["operators"]
        assert (operator["name"], operator["partitions"]) == ("stateStoreSave", 2)
        assert operator["bytes"] > 1000
        assert report["stores_to_convert"] == (0 if report["provider"] == HDFS else 2)
        assert "offsets/3" in report["edits"]


class TestRefusals:
    @pytest.fixture
    def checkpoint(self, stopped_on: StoppedOn, tmp_path: Path) -> Path:
        return copied(stopped_on(HDFS), tmp_path / "checkpoint")

    @pytest.mark.parametrize(
        ("harm", "message"),
        [
            (
                lambda path: (path / "state/0/_metadata/metadata").rename(
                    path / "state/0/_metadata/moved"
                ),
                "metadata is missing: an older Spark",
            ),
            (lambda path: v2_metadata(path), r"stateStoreSave, keeps its state in column families"),
            (
                lambda path: delete(path / "commits" / "2") or delete(path / "commits" / "3"),
                "batch 3 is the last that was planned, and batch 1 is the last that is committed",
            ),
            (
                lambda path: rewrite(path / "offsets" / "3", lambda text: "v9" + text[2:]),
                r"offsets/3 in .* has format version 9; .* reads up to 2",
            ),
            (lambda path: shutil.rmtree(path / "state" / "0" / "0"), r"partitions \[1\] of 2"),
            (lambda path: shutil.rmtree(path / "state"), "has no state"),
            (lambda path: shutil.rmtree(path / "offsets"), "is not a checkpoint: metadata or"),
            (lambda path: shutil.rmtree(path), "is not a checkpoint: metadata or"),
            (
                lambda path: [delete(file) for file in (path / "offsets").glob("[0-9]*")],
                "has no batch yet",
            ),
        ],
    )
    def test_what_is_not_a_whole_checkpoint_is_refused(
        self,
        checkpoint: Path,
        capsys: pytest.CaptureFixture[str],
        harm: Callable[[Path], Any],
        message: str,
    ) -> None:
        harm(checkpoint)
        refused(checkpoint, message, capsys)

    def test_an_offset_log_that_cannot_be_read_is_an_error_that_names_it(
        self, checkpoint: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        log = checkpoint / "offsets" / "3"
        log.write_bytes(log.read_bytes()[:-1] + b"?")
        refused(checkpoint, "cannot be used: .*ChecksumException.*offsets/3", capsys)


def v2_metadata(checkpoint: Path) -> None:
    folder = checkpoint / "state" / "0" / "_metadata"
    (folder / "v2").mkdir()
    (folder / "metadata").rename(folder / "v2" / "0")


def test_a_query_of_a_python_operator_is_on_cowstate_already(
    stream: Stream, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.feed([("a", 1)])
    stream.run(stream.operator(name="totals"))
    message = "transform_with_state are on cowstate already: .* spark.cowstate.store, below "
    refused(stream.checkpoint, message, capsys)
