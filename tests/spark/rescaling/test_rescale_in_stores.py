"""Queries with state in an object store go on with another number of partitions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.provider.state_place import state_place
from cowstate.cli.command_line import main
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from tests.support.provider.adoption_jobs import FORMAT_2, contents
from tests.support.provider.operator_jobs import OPERATOR_JOBS
from tests.support.provider.provider_inputs import write_batches
from tests.support.provider.provider_jobs import (
    COWSTATE,
    HDFS,
    THROUGH_MANAGER,
    Options,
    ProviderRun,
    configured,
)
from tests.support.provider.provider_stores import (
    RETRY_SECONDS,
    StorePlace,
    directory_store,
    s3_store,
)
from tests.support.provider.rescaled_jobs import (
    RescaledRun,
    rescale,
    rescaled,
    revert,
    rows_of_state,
)
from tests.support.provider.stopped_changes import StoppedError, stop_after
from tests.support.stores.moto_s3 import S3Server

pytestmark = pytest.mark.spark

BATCHES = 4
WRITING = {CheckpointFiles: ["write_text", "copy", "delete", "start_rescaling", "discard_rescaled"]}
MOST_WRITES = 60
Begun = Callable[[str, StorePlace, Options], RescaledRun]


@pytest.fixture
def begun(spark: SparkSession, tmp_path: Path) -> Begun:
    """Build a job after two batches with its state in a store, and the same job on HDFSBacked."""

    def begin(name: str, store: StorePlace, settings: Options) -> RescaledRun:
        job, shape = OPERATOR_JOBS[name]
        in_store = {**settings, **store.settings}
        run = RescaledRun(
            ProviderRun(spark, job, COWSTATE, tmp_path / "rescaled", in_store),
            ProviderRun(spark, job, HDFS, tmp_path / "expected", THROUGH_MANAGER),
            write_batches(tmp_path / "left", 1, BATCHES, shape),
            write_batches(tmp_path / "right", 101, BATCHES, shape),
        )
        run.go_on(2)
        return run

    return begin


@pytest.fixture
def store(tmp_path: Path) -> StorePlace:
    return directory_store(tmp_path / "store")


def test_a_query_in_s3_goes_on_with_other_numbers_as_if_uninterrupted(
    begun: Begun, s3: S3Server
) -> None:
    store = s3_store(s3)
    run = begun("session windows", store, FORMAT_2)
    for number in (6, 3):
        before = rows_of_state(run.rescaled, run.rescaled.batches[-1])
        with configured(run.rescaled.spark, store.access):
            rescaled(run.rescaled.checkpoint, number)
        assert rows_of_state(run.rescaled, run.rescaled.batches[-1]) == before
        run.go_on(1)
    run.assert_agrees()
    assert not [*run.rescaled.checkpoint.rglob("*.arrow")]


def test_one_that_stops_at_any_write_is_undone_in_the_store_and_in_the_checkpoint(
    begun: Begun, store: StorePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun("session windows", store, FORMAT_2)
    checkpoint = run.rescaled.checkpoint
    there = tmp_path / "store"
    before, before_there = contents(checkpoint), contents(there)
    rows = rows_of_state(run.rescaled, run.rescaled.batches[-1])
    for writes in range(MOST_WRITES):
        with monkeypatch.context() as patch:
            stop_after(patch, writes, WRITING)
            try:
                rescaled(checkpoint, 5)
                break
            except StoppedError:
                leave_unfinished_notes(checkpoint)
        assert rows_of_state(run.rescaled, run.rescaled.batches[-1]) == rows
        if (checkpoint / "_cowstate_rescale").exists():
            revert(checkpoint)
        assert (contents(checkpoint), contents(there)) == (before, before_there), writes
    assert writes > 5
    revert(checkpoint)
    assert (contents(checkpoint), contents(there)) == (before, before_there)
    rescaled(checkpoint, 3)
    run.go_on(2)
    run.assert_agrees()


def leave_unfinished_notes(checkpoint: Path) -> None:
    """Leave what a task leaves that is killed while it writes the note of a new partition."""
    for partition in (checkpoint / "state" / "0").glob("[34]"):
        (partition / f"._cowstate-store.{uuid4()}.TID4.tmp").touch()


def test_a_rescaled_state_moves_into_the_checkpoint_and_back_to_a_store(
    begun: Begun, store: StorePlace, tmp_path: Path
) -> None:
    run = begun("session windows", store, FORMAT_2)
    rescaled(run.rescaled.checkpoint, 5)
    adopt(run.rescaled, "checkpoint")
    assert state_place(open_object_store(str(run.rescaled.checkpoint))) is None
    run.go_on(1)
    rescaled(run.rescaled.checkpoint, 3)
    adopt(run.rescaled, directory_store(tmp_path / "another").url)
    run.go_on(1)
    run.assert_agrees()


def adopt(query: ProviderRun, store: str) -> None:
    arguments = ["--store", store, "--apply", "--force"]
    assert main(["adopt", str(query.checkpoint), *arguments]) == 0
    query.settings = FORMAT_2


def test_a_store_that_is_gone_is_told_and_nothing_is_changed(
    begun: Begun, capsys: pytest.CaptureFixture[str], spark: SparkSession, s3: S3Server
) -> None:
    store = s3_store(s3)
    run = begun("session windows", store, THROUGH_MANAGER)
    before = contents(run.rescaled.checkpoint)
    nowhere = StorePlace(store.url, {**store.options, "endpoint_url": "http://127.0.0.1:9"})
    with configured(spark, {**nowhere.access, RETRY_SECONDS: "1"}):
        for arguments in ([], ["--apply", "--force"]):
            assert rescale(run.rescaled.checkpoint, 5, *arguments) == 2
            assert store.url in capsys.readouterr().err
    assert contents(run.rescaled.checkpoint) == before
