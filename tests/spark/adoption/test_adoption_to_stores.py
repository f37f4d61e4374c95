"""A stopped query goes on after its state moves to an object store, to a second store and back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from checkpoint_store.errors import StoreAccessError
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from checkpoint_store.provider.state_place import StatePlace, state_place
from cowstate.cli.command_line import main
from spark_state.spark.provider import placed_state
from spark_state.spark.stopped_query.change_record import ChangeRecord
from tests.support.provider.adoption_jobs import (
    AGGREGATION,
    FORMAT_2,
    JOIN,
    SEGMENTS,
    Adopted,
    FirstSegments,
    Seen,
    Uninterrupted,
    contents,
    copied,
    refused,
)
from tests.support.provider.provider_jobs import (
    COWSTATE,
    HDFS,
    ROCKSDB,
    THROUGH_MANAGER,
    Options,
    configured,
)
from tests.support.provider.provider_stores import (
    STORE_OPTIONS,
    StorePlace,
    directory_store,
    s3_store,
)
from tests.support.stores.fake_object_store import RefusingObjectStore
from tests.support.stores.moto_s3 import S3Server
from tests.support.tables.table_jobs import Changes

pytestmark = pytest.mark.spark


def place_of(query: Adopted) -> StatePlace | None:
    return state_place(open_object_store(str(query.checkpoint)))


def files_in(store: StorePlace, place: StatePlace) -> list[str]:
    objects = store.objects
    partitions = objects.list_directories(f"{place.directory}/state/0")
    named = [below for name in partitions for below in objects.list_directories(name)]
    return [info.name for name in (*partitions, *named) for info in objects.list(name)]


def without_listings(url: str, options: Mapping[str, Any] | None = None) -> ObjectStore:
    """Open the store at a URL as a user without the right to list."""

    def refusal(operation: str, _: str) -> Exception | None:
        return StoreAccessError(url, "no right to list") if operation == "list" else None

    return RefusingObjectStore(open_object_store(url, options), refusal)


def move(query: Adopted, url: str, store: StorePlace) -> None:
    """Adopt with `--store` in the session of the tests."""
    with configured(query.run.spark, store.access):
        query.adopt("--store", url)
    query.run.settings = {**query.run.settings, **store.access}


@pytest.mark.parametrize(
    "begun",
    [
        (AGGREGATION, HDFS, THROUGH_MANAGER),
        ("session windows", ROCKSDB, THROUGH_MANAGER),
        (JOIN, COWSTATE, FORMAT_2),
    ],
    ids=lambda begun: f"{begun[0]} on {begun[1].rpartition('.')[2]}",
)
def test_a_query_goes_on_in_s3_and_then_in_its_checkpoint_as_if_uninterrupted(
    first_segments: FirstSegments,
    tmp_path: Path,
    uninterrupted: Uninterrupted,
    s3: S3Server,
    begun: tuple[str, str, Options],
) -> None:
    name, provider, settings = begun
    query, store = first_segments.copy(name, provider, tmp_path, settings), s3_store(s3)
    move(query, store.url, store)
    place = place_of(query)
    assert place is not None
    assert place.url == store.url
    query.go_on(SEGMENTS[1])
    query.go_on(SEGMENTS[2])
    assert len(files_in(store, place)) > len(query.run.job.stores)
    move(query, "checkpoint", store)
    assert place_of(query) is None
    query.go_on(SEGMENTS[3])
    assert Seen.of(query.run) == uninterrupted(name)


def test_a_state_in_a_store_goes_on_to_hdfs_and_then_to_another_store(
    first_segments: FirstSegments, tmp_path: Path, uninterrupted: Uninterrupted
) -> None:
    first, second = (directory_store(tmp_path / name) for name in ("first", "second"))
    query = first_segments.copy(AGGREGATION, COWSTATE, tmp_path, THROUGH_MANAGER)
    query.adopt("--store", first.url)
    query.go_on(SEGMENTS[1])
    query.adopt("--to", "hdfs")
    assert place_of(query) is None
    query.go_on(SEGMENTS[2])
    query.adopt("--store", second.url)
    place = place_of(query)
    assert place is not None
    assert place.url == second.url
    query.go_on(SEGMENTS[3])
    assert Seen.of(query.run) == uninterrupted(AGGREGATION)


def test_a_copy_of_a_checkpoint_goes_on_beside_its_original_with_a_state_of_its_own(
    first_segments: FirstSegments, tmp_path: Path, uninterrupted: Uninterrupted
) -> None:
    store = directory_store(tmp_path / "store")
    query = first_segments.copy(AGGREGATION, COWSTATE, tmp_path / "original", THROUGH_MANAGER)
    query.adopt("--store", store.url)
    query.go_on(SEGMENTS[1])
    copy = query.copy(tmp_path / "copy")
    refused_copy = query.copy(tmp_path / "refused")
    way_out = f"cowstate adopt .*/refused.* --store {re.escape(store.url)} --apply"
    with pytest.raises(StreamingQueryException, match=f"copied or moved from there.*{way_out}"):
        refused_copy.go_on(1)
    copy.adopt("--store", store.url)
    assert len({place_of(query), place_of(copy), None}) == 3
    for batches in SEGMENTS[2:]:
        query.go_on(batches)
        copy.go_on(batches)
    assert Seen.of(query.run) == Seen.of(copy.run) == uninterrupted(AGGREGATION)


class TestWhatTheCommandDoes:
    @pytest.fixture
    def query(self, first_segments: FirstSegments, tmp_path: Path) -> Adopted:
        return first_segments.copy(AGGREGATION, COWSTATE, tmp_path, THROUGH_MANAGER)

    @pytest.fixture
    def store(self, tmp_path: Path) -> StorePlace:
        return directory_store(tmp_path / "store")

    def test_a_dry_run_tells_the_steps_and_changes_nothing(
        self, query: Adopted, store: StorePlace, capsys: pytest.CaptureFixture[str]
    ) -> None:
        checkpoint = copied(query.checkpoint, query.run.folder / "quiet")
        before = contents(checkpoint)
        assert main(["adopt", str(checkpoint), "--store", store.url]) == 0
        told = capsys.readouterr().out
        assert f"State in    the checkpoint  {store.url}/" in told
        assert f"CowStateStoreProvider to {store.url}, read them back and compare" in told
        assert f"name {store.url} in state/cowstate-store.json" in told
        assert contents(checkpoint) == before
        assert not (query.run.folder.parent / "store").exists()

    def test_json_names_the_place(
        self, query: Adopted, store: StorePlace, capsys: pytest.CaptureFixture[str]
    ) -> None:
        arguments = ["adopt", str(query.checkpoint), "--store", store.url, "--apply", "--force"]
        assert main([*arguments, "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        place = place_of(query)
        assert place is not None
        assert (report["place"], report["store"]) == (None, place.root)
        assert report["rows"]["operator 0"] > 0
        assert main(["adopt", str(query.checkpoint), "--json", "--store", "checkpoint"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["place"], report["store"]) == (place.root, None)
        assert report["operators"][0]["files"] > 0

    def test_after_a_batch_it_is_not_undone(
        self, query: Adopted, store: StorePlace, capsys: pytest.CaptureFixture[str]
    ) -> None:
        query.adopt("--store", store.url)
        query.go_on(1)
        assert main(["adopt", str(query.checkpoint), "--revert", "--force"]) == 2
        assert "has gone on to batch" in capsys.readouterr().err

    def test_a_stream_of_its_changes_goes_on_after_the_move(
        self, spark: SparkSession, query: Adopted, store: StorePlace, tmp_path: Path
    ) -> None:
        changes = Changes(spark, str(query.checkpoint), tmp_path / "reader")

        def read_on() -> list[int]:
            return sorted({row._commit_version for batch in changes.run() for row in batch})

        newest = query.run.batches[-1]
        assert read_on()[-1] == newest
        query.adopt("--store", store.url)
        query.go_on(1)
        assert read_on() == [*range(newest + 1, query.run.batches[-1] + 1)]

    def test_options_with_credentials_are_refused_as_by_the_provider(
        self,
        spark: SparkSession,
        query: Adopted,
        store: StorePlace,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        query.adopt("--store", store.url)
        with configured(spark, {STORE_OPTIONS: '{"client_kwargs": {"auth": "hidden"}}'}):
            refused(query.checkpoint, "storeOptions has 'auth'", capsys, "--store", "checkpoint")

    def test_a_store_that_cannot_be_used_is_told_with_what_may_be_left_there(
        self, spark: SparkSession, query: Adopted, s3: S3Server, capsys: pytest.CaptureFixture[str]
    ) -> None:
        before = contents(query.checkpoint)
        arguments = ["--store", "s3://no-such-bucket/p", "--apply", "--force"]
        options = {STORE_OPTIONS: json.dumps({"endpoint_url": s3.endpoint})}
        with (
            configured(spark, options),
            mock.patch.object(placed_state, "open_object_store", without_listings),
        ):
            assert main(["adopt", str(query.checkpoint), *arguments]) == 2
        told = capsys.readouterr().err
        assert "cannot use the store s3://no-such-bucket/p" in told
        assert "no right to list" not in told
        assert "Files may be left in s3://no-such-bucket/p/" in told
        assert contents(query.checkpoint) == before

    def test_a_move_that_was_killed_is_undone_though_its_store_cannot_be_listed(
        self, query: Adopted, store: StorePlace, capsys: pytest.CaptureFixture[str]
    ) -> None:
        before, place = contents(query.checkpoint), StatePlace(store.url, "directory")
        killed = query.checkpoint / "_cowstate_adopt" / "20260101T000000.000000Z"
        killed.mkdir(parents=True)
        begun = ChangeRecord(
            query.checkpoint.as_uri(), 3, 3, {}, own={"place": place.encode().decode()}
        )
        (killed / "adoption-begun.json").write_text(json.dumps(begun.content()))
        with mock.patch.object(placed_state, "open_object_store", without_listings):
            assert main(["adopt", str(query.checkpoint), "--revert", "--force"]) == 0
        assert f"Files may be left in {place.root}, because" in capsys.readouterr().out
        assert contents(query.checkpoint) == before
