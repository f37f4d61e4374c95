"""The provider finds the right place for the state of a checkpoint, and refuses wrong writers."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from checkpoint_store.errors import CorruptObjectError
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.provider.state_place import StatePlace, state_place
from tests.support.provider.provider_jvm import START, ProviderJvm
from tests.support.stores.misbehaving_gateway import end_gateways, gateways_below

pytestmark = pytest.mark.spark

REFUSED = "error CANNOT_LOAD_STATE_STORE.UNCATEGORIZED by CowStatePlaceException"
FENCED = "CowStateFencedException"
QUERY = "the-query"


class Checkpoint:
    """A query's checkpoint, and scripts for the provider of its only store."""

    def __init__(self, provider_jvm: ProviderJvm, folder: Path) -> None:
        self._jvm = provider_jvm
        self.folder = folder
        self.store = folder.parent / "store"
        self.folder.mkdir(exist_ok=True)
        metadata = self.folder / "metadata"
        if not metadata.exists():
            metadata.write_text(f'{{"id":"{QUERY}"}}')

    @property
    def start(self) -> str:
        return f"{START} stateStore.cowstate.store={self.store}"

    def script(self) -> Any:
        return self._jvm.new("ProviderScript", f"{self.folder}/state")

    def run(self, *lines: str) -> list[str]:
        results: str = self.script().run("\n".join(lines))
        return results.split("\n")

    def message(self, *lines: str) -> str:
        """The error message of the last line."""
        return self.run(*lines[:-1], f"message {lines[-1]}")[-1]

    def place(self) -> StatePlace | None:
        return state_place(open_object_store(str(self.folder)))

    def files(self, below: Path | None = None) -> list[str]:
        root = below or self.store / QUERY / "state"
        return sorted(str(path.relative_to(root)) for path in root.rglob("*.arrow"))


@pytest.fixture
def checkpoint(provider_jvm: ProviderJvm, tmp_path: Path) -> Checkpoint:
    return Checkpoint(provider_jvm, tmp_path / "checkpoint")


def batch(version: int, number: int, seed: int) -> list[str]:
    return [f"begin {version}", f"put {number} 1:{seed}", "commit"]


class TestTheMarker:
    def test_a_new_query_begins_in_the_store_and_its_checkpoint_says_so(
        self, checkpoint: Checkpoint
    ) -> None:
        checkpoint.run(checkpoint.start, *batch(0, 1, 1))
        assert checkpoint.place() == StatePlace(checkpoint.store.as_uri(), QUERY)
        (file,) = checkpoint.files()
        assert file.startswith("0/0/")
        assert file.endswith(".changelog.arrow")
        assert not checkpoint.files(checkpoint.folder)

    def test_a_store_that_cannot_be_used_is_never_named_and_another_may_be(
        self, checkpoint: Checkpoint, tmp_path: Path
    ) -> None:
        (tmp_path / "file").write_text("no directory")
        wrong = f"{START} stateStore.cowstate.store={tmp_path / 'file' / 'states'}"
        assert "cannot use the store" in checkpoint.message(wrong, "begin 0")
        assert checkpoint.place() is None
        assert checkpoint.run(checkpoint.start, *batch(0, 1, 1), "entries 1")[-1] == "1=1:1"
        assert checkpoint.place() == StatePlace(checkpoint.store.as_uri(), QUERY)

    def test_without_the_setting_it_is_followed_by_readers_and_writers(
        self, checkpoint: Checkpoint
    ) -> None:
        checkpoint.run(checkpoint.start, *batch(0, 1, 1))
        assert checkpoint.run(START, "entries 1", *batch(1, 2, 2), "entries 2")[1:] == [
            *("1=1:1", "", "", "", "1=1:1 2=1:2")
        ]
        assert len(checkpoint.files()) == 2
        assert not checkpoint.files(checkpoint.folder)

    def test_a_query_that_has_none_goes_on_in_its_checkpoint_without_a_gateway(
        self, checkpoint: Checkpoint
    ) -> None:
        end_gateways()
        checkpoint.run(START, *batch(0, 1, 1))
        assert not gateways_below(psutil.Process())
        assert checkpoint.place() is None
        assert len(checkpoint.files(checkpoint.folder)) == 1
        assert not checkpoint.store.exists()

    @pytest.mark.parametrize("has_commits", [True, False])
    def test_a_checkpoint_that_has_state_is_refused_and_nothing_is_changed(
        self, checkpoint: Checkpoint, has_commits: bool
    ) -> None:
        """The commits show state in some store, even if this store has none."""
        if has_commits:
            (checkpoint.folder / "commits").mkdir()
            (checkpoint.folder / "commits" / "0").write_text("v1\n{}")
        else:
            checkpoint.run(START, *batch(0, 1, 1))
        told = checkpoint.message(checkpoint.start, f"begin {int(not has_commits)}")
        assert f"The state of file:{checkpoint.folder} is in file:{checkpoint.folder}/state" in told
        assert (
            f"not in spark.sql.streaming.stateStore.cowstate.store = file://{checkpoint.store},"
            in told
        )
        assert f"cowstate adopt file:{checkpoint.folder} --store file://{checkpoint.store}" in told
        assert checkpoint.place() is None
        assert not checkpoint.store.exists()

    def test_a_reader_of_a_checkpoint_that_has_state_needs_not_care(
        self, checkpoint: Checkpoint
    ) -> None:
        checkpoint.run(START, *batch(0, 1, 1))
        assert checkpoint.run(checkpoint.start, "entries 1")[-1] == "1=1:1"

    def test_another_store_than_that_of_the_checkpoint_is_refused_with_both_urls(
        self, checkpoint: Checkpoint
    ) -> None:
        checkpoint.run(checkpoint.start, *batch(0, 1, 1))
        other = f"{START} stateStore.cowstate.store=s3://other/prefix/"
        assert checkpoint.run(other, "entries 1", "begin 1")[1:] == ["1=1:1", REFUSED]
        told = checkpoint.message(other, "begin 1")
        assert f"is in file://{checkpoint.store}, not in" in told
        assert "cowstate.store = s3://other/prefix, where it would begin empty" in told

    def test_a_slash_at_the_end_and_a_path_are_the_same_store(self, checkpoint: Checkpoint) -> None:
        checkpoint.run(checkpoint.start, *batch(0, 1, 1))
        slash = f"{START} stateStore.cowstate.store=file://{checkpoint.store}/"
        assert checkpoint.run(slash, *batch(1, 2, 2), "entries 2")[-1] == "1=1:1 2=1:2"

    def test_a_damaged_marker_is_an_error_that_names_it(self, checkpoint: Checkpoint) -> None:
        checkpoint.run(checkpoint.start, *batch(0, 1, 1))
        marker = checkpoint.folder / "state" / "cowstate-store.json"
        marker.with_name(f".{marker.name}.crc").unlink()
        whole = marker.read_text()
        for damaged in (whole[:-5], whole.replace(QUERY, "another"), "", "[]"):
            marker.write_text(damaged)
            told = checkpoint.message(START, "entries 1")
            assert f"{marker}, which says where the state of the checkpoint is" in told
            assert "Restore it from a copy" in told
            assert f"the id in file:{checkpoint.folder}/metadata" in told
            with pytest.raises(CorruptObjectError, match="It says which object store"):
                checkpoint.place()
        marker.write_text(whole)
        assert checkpoint.run(START, "entries 1")[-1] == "1=1:1"

    def test_a_marker_that_is_damaged_on_the_disk_can_be_written_again_as_the_error_says(
        self, checkpoint: Checkpoint
    ) -> None:
        checkpoint.run(checkpoint.start, *batch(0, 1, 1))
        marker = checkpoint.folder / "state" / "cowstate-store.json"
        marker.write_bytes(bytes(marker.stat().st_size))
        told = checkpoint.message(START, "entries 1")
        assert f"{marker}, which says where the state of the checkpoint is" in told
        assert "StatePlace(url, directory).encode()" in told
        assert f"Delete .{marker.name}.crc" in told
        marker.write_bytes(StatePlace(checkpoint.store.as_uri(), QUERY).encode())
        marker.with_name(f".{marker.name}.crc").unlink()
        assert checkpoint.run(START, "entries 1")[-1] == "1=1:1"

    def test_a_marker_of_a_later_release_is_told_apart(self, checkpoint: Checkpoint) -> None:
        (checkpoint.folder / "state").mkdir()
        marker = checkpoint.folder / "state" / "cowstate-store.json"
        marker.write_text('{"body":{},"format":"cowstate/state-place","version":2}')
        told = checkpoint.message(START, "begin 0")
        assert "format version 2, of a later release" in told

    def test_the_directory_of_a_checkpoint_without_an_id_is_that_of_its_first_run(
        self, checkpoint: Checkpoint
    ) -> None:
        (checkpoint.folder / "metadata").unlink()
        checkpoint.run(checkpoint.start, *batch(0, 1, 1))
        place = checkpoint.place()
        assert place is not None
        assert [path.name for path in checkpoint.store.iterdir()] == [place.directory]
        assert checkpoint.run(checkpoint.start, *batch(1, 2, 2), "entries 2")[-1] == "1=1:1 2=1:2"

    @pytest.mark.parametrize("has_read", [True, False])
    def test_executors_find_the_marker_of_a_batch_that_their_run_read_before(
        self, checkpoint: Checkpoint, has_read: bool
    ) -> None:
        """An aggregation reads before it writes, also in its first batch."""
        read = ["read 0", "release"]
        results = checkpoint.run(
            checkpoint.start,
            *("executor a", *read, *(["executor b", *read, "executor a"] if has_read else [])),
            *batch(0, 1, 1),
            *("executor b", "entries 1", *batch(1, 2, 2), "entries 2"),
        )
        assert [results[-5], results[-1]] == ["1=1:1", "1=1:1 2=1:2"]


class TestSettings:
    @pytest.mark.parametrize(
        ("url", "problem"),
        [
            ("relative/path", "is 'relative/path', which is no URL and no absolute path; allowed"),
            ("s3:/bucket", "is 's3:/bucket', which is no URL"),
            ("file://relative", "which has no absolute path"),
            ("memory://state", "which each gateway would have for itself"),
            ("s3://me:hidden@bucket/state", "is 's3://…@bucket/state', which has credentials"),
            ("s3://me:hid/den@bucket/p", "is 's3://…@bucket/p', which has credentials"),
            ("simplecache::s3://me:hidden@b/p", "is 'simplecache::s3://…@b/p', which has cred"),
            ("https://host/state?sig=hidden", "is 'https://host/state?…', which has a query"),
            ("https://host/state?sig=a:hidden@b", "is 'https://host/state?…', which has a query"),
        ],
    )
    def test_a_url_that_cannot_be_used_is_refused(
        self, checkpoint: Checkpoint, url: str, problem: str
    ) -> None:
        settings = f"stateStore.cowstate.storeRetrySeconds=1 stateStore.cowstate.store={url}"
        with pytest.raises(Exception, match=r"cowstate\.store ") as raised:
            checkpoint.run(f"{START} {settings}", "begin 0")
        told = str(raised.value)
        assert problem in told
        assert "hid" not in told

    @pytest.mark.parametrize(
        "options",
        [
            '{"secret":"hidden"}',
            '{"client_kwargs":{"aws_secret_access_key":"hidden"}}',
            '{"list":[{"sas_token":"hidden"}]}',
            '{"key":"hidden"}',
            '{"PASSWORD":"hidden"}',
            '{"aws_access_key_id":"hidden"}',
            '{"connection_string":"hidden"}',
            '{"client_kwargs":{"auth":"hidden"}}',
            '{"headers":{"Authorization":"hidden"}}',
            '{"pass":"hidden"}',
            '{"endpoint_url":"http://me:hidden@minio:9000"}',
            '{"proxies":["http://me:hid/den@proxy"]}',
        ],
    )
    def test_credentials_in_options_are_refused_and_not_shown(
        self, checkpoint: Checkpoint, options: str
    ) -> None:
        with pytest.raises(Exception, match="looks like a credential") as raised:
            checkpoint.run(f"{START} stateStore.cowstate.storeOptions={options}", "begin 0")
        assert "hid" not in str(raised.value)
        assert "environment of the executors" in str(raised.value)

    def test_options_that_are_no_credentials_are_taken(self, checkpoint: Checkpoint) -> None:
        options = (
            '{"s3_additional_kwargs":{"SSEKMSKeyId":"id"},"use_listings_cache":false,'
            '"endpoint_url":"http://minio:9000","author":"me"}'
        )
        start = f"{checkpoint.start} stateStore.cowstate.storeOptions={options}"
        assert checkpoint.run(start, *batch(0, 1, 1), "entries 1")[-1] == "1=1:1"

    @pytest.mark.parametrize("options", ['["secret"]', '{"secret":"hidden', "hidden"])
    def test_options_that_are_no_json_object_are_refused_and_not_shown(
        self, checkpoint: Checkpoint, options: str
    ) -> None:
        with pytest.raises(Exception, match=r"storeOptions is not (a )?JSON") as raised:
            checkpoint.run(f"{START} stateStore.cowstate.storeOptions={options}", "begin 0")
        assert "hidden" not in str(raised.value)

    def test_a_time_of_retries_is_a_whole_number(self, checkpoint: Checkpoint) -> None:
        with pytest.raises(Exception, match=r"storeRetrySeconds is 'soon'; allowed are whole"):
            checkpoint.run(f"{START} stateStore.cowstate.storeRetrySeconds=soon", "begin 0")


class TestWhoMayWrite:
    def test_a_copy_of_a_checkpoint_is_refused_and_the_original_goes_on(
        self, provider_jvm: ProviderJvm, checkpoint: Checkpoint, tmp_path: Path
    ) -> None:
        checkpoint.run(checkpoint.start, *batch(0, 1, 1))
        shutil.copytree(checkpoint.folder, tmp_path / "copy")
        copy = Checkpoint(provider_jvm, tmp_path / "copy")
        before = checkpoint.files()
        assert copy.run(START, "entries 1", "begin 1")[1:] == ["1=1:1", REFUSED]
        told = copy.message(START, "begin 1")
        assert f"where the query of file:{checkpoint.folder} writes" in told
        assert f"cowstate adopt file:{copy.folder} --store file://{copy.store}" in told
        assert checkpoint.files() == before
        assert checkpoint.run(START, *batch(1, 2, 2), "entries 2")[-1] == "1=1:1 2=1:2"

    def test_a_copy_at_the_same_place_elsewhere_is_refused_once_the_original_has_run(
        self, provider_jvm: ProviderJvm, checkpoint: Checkpoint, tmp_path: Path
    ) -> None:
        """The copy is like a disk with the checkpoint, copied to another machine."""
        checkpoint.run(checkpoint.start, *batch(0, 1, 1))
        shutil.copytree(checkpoint.folder, tmp_path / "disk")
        checkpoint.run(START, *batch(1, 2, 2))
        checkpoint.folder.rename(tmp_path / "original")
        (tmp_path / "disk").rename(checkpoint.folder)
        copy = Checkpoint(provider_jvm, checkpoint.folder)
        assert copy.run(START, "begin 1")[1:] == [REFUSED]
        assert "has gone on from another copy of this checkpoint" in copy.message(START, "begin 1")
        checkpoint.folder.rename(tmp_path / "disk")
        (tmp_path / "original").rename(checkpoint.folder)
        assert checkpoint.run(START, *batch(2, 3, 3), "entries 3")[-1] == "1=1:1 2=1:2 3=1:3"

    def test_a_run_that_another_one_has_followed_writes_nothing_that_counts(
        self, checkpoint: Checkpoint
    ) -> None:
        results = checkpoint.run(
            checkpoint.start,
            *("executor zombie", *batch(0, 1, 1)),
            *("new-run", "executor successor", *batch(1, 2, 2)),
            *("executor zombie", "attempt 1", "begin 1"),
            *("executor successor", "attempt 0", *batch(2, 3, 3), "entries 3"),
        )
        assert FENCED in results[12]
        assert results[-1] == "1=1:1 2=1:2 3=1:3"

    def test_of_two_runs_that_claimed_at_once_none_goes_on(self, checkpoint: Checkpoint) -> None:
        checkpoint.run(checkpoint.start, *batch(0, 1, 1))
        (claim,) = (checkpoint.store / QUERY / "runs").iterdir()
        claim.with_name(f"{claim.name[:20]}another.json").write_bytes(claim.read_bytes())
        assert checkpoint.run(START, "begin 1")[1:] == [REFUSED]
        assert "run another has gone on from another copy" in checkpoint.message(START, "begin 1")

    def test_a_run_that_claimed_at_once_with_another_one_stops(
        self, checkpoint: Checkpoint
    ) -> None:
        script = checkpoint.script()
        assert script.run(f"{checkpoint.start}\nexecutor a\nbegin 0\nput 1 1:1") == "\n\n\n"
        (claim,) = (checkpoint.store / QUERY / "runs").iterdir()
        claim.with_name(f"{claim.name[:20]}another.json").write_bytes(claim.read_bytes())
        assert FENCED in script.run("executor b\nattempt 1\nbegin 0")

    def test_executors_of_a_run_share_its_claim(self, checkpoint: Checkpoint) -> None:
        results = checkpoint.run(
            checkpoint.start,
            *("executor a", *batch(0, 1, 1), "executor b", *batch(1, 2, 2)),
            *("executor a", *batch(2, 3, 3), "entries 3"),
        )
        assert results[-1] == "1=1:1 2=1:2 3=1:3"
        assert len([*(checkpoint.store / QUERY / "runs").iterdir()]) == 1

    def test_a_reader_claims_nothing(self, checkpoint: Checkpoint) -> None:
        checkpoint.run(checkpoint.start, *batch(0, 1, 1))
        runs = checkpoint.store / QUERY / "runs"
        before = sorted(runs.iterdir())
        assert checkpoint.run(START, "entries 1", "changes 1 1")[1:] == ["1=1:1", "0:1=1:1"]
        assert sorted(runs.iterdir()) == before

    def test_who_opens_a_store_outside_of_a_run_claims_it_only_to_write(
        self, checkpoint: Checkpoint
    ) -> None:
        """Spark 4.2 reads the state of a join from stores that it opens for writing."""
        results = checkpoint.run(
            checkpoint.start,
            *("executor query", *batch(0, 1, 1)),
            *("new-run", "executor reader", "open 1", "entries", "abort"),
            *("executor query", *batch(1, 2, 2), "entries 2"),
        )
        assert results[8] == "1=1:1"
        assert results[-1] == "1=1:1 2=1:2"
        runs = checkpoint.store / QUERY / "runs"
        assert len([*runs.iterdir()]) == 1
        checkpoint.run(START, "new-run", "executor writer", "open 2", "put 3 1:3", "commit")
        assert len([*runs.iterdir()]) == 2

    def test_a_run_that_several_have_followed_claims_nothing_where_it_had_not_written(
        self, checkpoint: Checkpoint
    ) -> None:
        """An executor with a different setting has a separate claim."""
        results = checkpoint.run(
            checkpoint.start,
            *("executor a", *batch(0, 1, 1)),
            *("set stateStore.cowstate.storeRetrySeconds=60", "executor zombie"),
            *("new-run", "executor b", *batch(1, 2, 2)),
            *("new-run", "executor c", *batch(2, 3, 3)),
            *("executor zombie", "attempt 1", "begin 1"),
            *("executor c", "attempt 0", *batch(3, 4, 4), "entries 4"),
        )
        assert FENCED in results[-7]
        assert results[-1] == "1=1:1 2=1:2 3=1:3 4=1:4"

    def test_a_checkpoint_whose_move_was_undone_goes_on_in_its_former_directory(
        self, checkpoint: Checkpoint
    ) -> None:
        checkpoint.run(checkpoint.start, *batch(0, 1, 1))
        marker = checkpoint.folder / "state" / "cowstate-store.json"
        marker.with_name(f".{marker.name}.crc").unlink()
        before = marker.read_bytes()
        marker.write_bytes(StatePlace(checkpoint.store.as_uri(), "another").encode())
        for _ in range(2):
            assert checkpoint.run(START, "begin 0", "abort")[1:] == ["", ""]
        marker.write_bytes(before)
        assert checkpoint.run(START, *batch(1, 2, 2), "entries 2")[-1] == "1=1:1 2=1:2"

    def test_a_hundred_claims_are_kept_however_many_runs_there_are(
        self, checkpoint: Checkpoint
    ) -> None:
        checkpoint.run(checkpoint.start, *batch(0, 1, 1))
        runs = checkpoint.store / QUERY / "runs"
        noted = checkpoint.folder / "state" / "cowstate-runs"
        (claim,) = runs.iterdir()
        for number in range(2, 151):
            (runs / f"{number:019d}-run{number}.json").write_bytes(claim.read_bytes())
            (noted / f"run{number}").touch()
        checkpoint.run(START, *batch(1, 2, 2))
        assert sorted(int(path.name[:19]) for path in runs.iterdir()) == [*range(52, 152)]
        assert len([*noted.glob("[0-9a-z]*")]) == 100


class TestFilesInTheStore:
    """The rules for files in a store are the rules for files in a checkpoint."""

    def newest(self, checkpoint: Checkpoint, kind: str) -> Path:
        files = (checkpoint.store / QUERY / "state" / "0" / "0").glob(f"*.{kind}.arrow")
        return max(files, key=lambda path: path.name)

    def test_a_changelog_that_is_missing_is_named_with_its_url(
        self, checkpoint: Checkpoint
    ) -> None:
        checkpoint.run(checkpoint.start, *batch(0, 1, 1), *batch(1, 2, 2))
        self.newest(checkpoint, "changelog").unlink()
        told = checkpoint.message(START, "entries 2")
        assert f"does not exist in file://{checkpoint.store}/{QUERY}/state/0/0" in told
        assert "restart the query from batch 1" in told

    def test_what_killed_writers_have_begun_is_deleted_after_a_day(
        self, checkpoint: Checkpoint
    ) -> None:
        begun = checkpoint.store / QUERY / ".unpublished"
        begun.mkdir(parents=True)
        for name, age_hours in {"old": 25, "young": 23}.items():
            (begun / name).write_bytes(b"half")
            then = time.time() - age_hours * 3600
            os.utime(begun / name, (then, then))
        checkpoint.run(checkpoint.start, *batch(0, 1, 1), "clean")
        assert [path.name for path in begun.iterdir()] == ["young"]
