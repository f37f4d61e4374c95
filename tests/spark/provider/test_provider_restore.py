"""A restart continues from the right run of a batch, and a restore survives failures on the way."""

from __future__ import annotations

import os
import re
import time
from functools import partial
from pathlib import Path

import pytest

from tests.support.provider.provider_file_bytes import sealed, value_place
from tests.support.provider.provider_jvm import START, ProviderJvm, Tasks

pytestmark = pytest.mark.spark

RESTART = [START, "entries 1"]
STATE = Path("0/0")


@pytest.fixture
def run(tasks: Tasks) -> Tasks:
    """Run a script of a provider's tasks, and return its results, of which none is an error."""

    def without_errors(*lines: str) -> list[str]:
        listed = tasks(*lines)
        assert not [result for result in listed if result.startswith("error")]
        return listed

    return without_errors


def names_of(root: Path, kind: str = "changelog") -> list[tuple[int, int]]:
    """The version and generation of each file."""
    files = (root / STATE).glob(f"*.{kind}.arrow")
    return sorted((int(file.name[:19]), int(file.name[20:30])) for file in files)


def batch(version: int, seed: int) -> list[str]:
    return [f"begin {version}", f"put 1 1:{seed}", "commit"]


class TestABatchThatRunsAgain:
    def test_replaces_its_earlier_run_on_the_same_executor(
        self, provider_jvm: ProviderJvm, tmp_path: Path
    ) -> None:
        lines = [START, *batch(0, 1), *batch(0, 2)]
        # Without generations, the greater of two random uniques would win half of the times.
        for number in range(8):
            root = tmp_path / str(number)
            results = provider_jvm.results("ProviderScript", root, *lines, *RESTART)
            assert results[-1] == "1=1:2"
            assert names_of(root) == [(1, 1), (1, 2)]

    def test_replaces_a_run_whose_commit_failed_after_its_file_was_there(
        self, run: Tasks, tmp_path: Path
    ) -> None:
        lines = [START, *batch(0, 1), "begin 1", "put 1 1:2", "abort", *batch(1, 3)]
        assert run(*lines, START, "entries 2")[-1] == "1=1:3"
        assert names_of(tmp_path) == [(1, 1), (2, 2)]

    def test_replaces_its_run_on_an_executor_that_was_lost(
        self, run: Tasks, tmp_path: Path
    ) -> None:
        lines = [
            *(START, "executor a", *batch(0, 1)),
            *("executor b", *batch(1, 2)),
            *("executor a", "attempt 1", *batch(1, 3)),
            *("executor c", "entries 2"),
        ]
        assert run(*lines)[-1] == "1=1:3"
        assert names_of(tmp_path) == [(1, 1), (2, 2), (2, 3)]

    def test_replaces_it_also_from_an_older_version_that_is_held(self, run: Tasks) -> None:
        lines = [
            *(START, "executor a", *batch(0, 1), *batch(1, 2)),
            *("executor b", *batch(1, 3)),
            *("executor a", *batch(1, 4)),
            *("executor c", "entries 2"),
        ]
        assert run(*lines)[-1] == "1=1:4"

    def test_is_not_undone_by_a_late_snapshot_of_the_run_that_it_replaced(
        self, run: Tasks, tmp_path: Path
    ) -> None:
        minimum = "stateStore.minDeltasForSnapshot=1"
        lines = [
            *(f"{START} {minimum}", "executor a", *batch(0, 1), *batch(1, 2)),
            *("executor b", *batch(1, 3)),
            *("executor a", "attempt 1", "begin 2", "abort", "maintain"),
            *("executor c", "entries 2"),
        ]
        assert run(*lines)[-1] == "1=1:3"
        assert names_of(tmp_path, "snapshot") == [(2, 3)]

    def test_a_batch_after_the_writers_own_lists_nothing(self, run: Tasks, tmp_path: Path) -> None:
        """A file of another writer changes nothing, though a listing would show the file."""
        lines = [
            *(START, "executor a", *batch(0, 1)),
            *("executor b", *batch(0, 2)),
            *("executor a", *batch(1, 3), *batch(2, 4)),
        ]
        run(*lines)
        assert names_of(tmp_path) == [(1, 1), (1, 2), (2, 1), (3, 1)]


class TestCleaning:
    SETTINGS = "minBatchesToRetain=1 stateStore.minDeltasForSnapshot=1"
    LIMIT = "stateStore.maxVersionsToDeletePerMaintenance=1"

    def test_what_the_limit_left_behind_is_deleted_without_another_batch(
        self, provider_jvm: ProviderJvm, tmp_path: Path
    ) -> None:
        batches = [line for number in range(12) for line in (*batch(number, number), "maintain")]
        unlimited = [f"{START} {self.SETTINGS}", *batches]
        provider_jvm.results("ProviderScript", tmp_path / "all", *unlimited)
        limited = f"{START} {self.SETTINGS} {self.LIMIT}"
        lines = [limited, *batches, "names", *["maintain"] * 12]
        results = provider_jvm.results("ProviderScript", tmp_path / "limited", *lines)
        left = {version for version, _ in names_of(tmp_path / "limited")}
        assert left == {version for version, _ in names_of(tmp_path / "all")}
        assert len(results[-13].split()) > len(left)

    def test_unfinished_files_of_killed_writers_go_though_no_version_does(
        self, run: Tasks, tmp_path: Path
    ) -> None:
        old, young = (tmp_path / STATE / f".{name}.arrow.tmp" for name in ("old", "young"))
        old.parent.mkdir(parents=True)
        for file in (old, young):
            file.touch()
        day_ago = time.time() - 90_000
        os.utime(old, (day_ago, day_ago))
        run(START, *batch(0, 1), "maintain")
        assert (old.exists(), young.exists()) == (False, True)


@pytest.fixture
def restore(provider_jvm: ProviderJvm, tmp_path: Path) -> Tasks:
    return partial(provider_jvm.results, "RestoreScript", tmp_path)


class TestReading:
    FIRST = f"{1:019}-"

    def test_the_files_opened_ahead_of_one_that_fails_are_closed(self, restore: Tasks) -> None:
        lines = ["write 6", f"fail {self.FIRST} eof", "slow 000002- 300", "slow 000003- 300"]
        *_, result, left = restore(*lines, "restore 6", "left-open")
        assert result.startswith("CowStateCorruptException")
        assert left == "0"

    def test_the_files_opened_ahead_are_closed_when_the_task_is_killed(
        self, restore: Tasks
    ) -> None:
        lines = ["write 6", "slow changelog 200", "interrupt 6 100", "left-open"]
        *_, result, left = restore(*lines)
        assert result.startswith("InterruptedException")
        assert left == "0"

    @pytest.mark.parametrize(
        ("fault", "error"),
        [
            ("Connection reset", "StateFileReadException .*{name} cannot be read: .*reset"),
            ("eof", "CowStateCorruptException .*{name} is damaged"),
        ],
    )
    @pytest.mark.parametrize("name", [FIRST, "1.delta"])
    def test_only_bytes_that_are_wrong_are_called_damaged(
        self, restore: Tasks, fault: str, error: str, name: str
    ) -> None:
        written = "write 1" if name == self.FIRST else "write-delta 1"
        lines = [written, "restore 1", f"fail {name} {fault}", "restore 1"]
        _, restored, _, failed = restore(*lines)
        assert restored == "restored 1"
        assert re.match(error.format(name=f"{re.escape(name)}[^/]*"), failed), failed

    def test_an_unknown_codec_of_sparks_files_is_named_and_the_file_is_not_called_damaged(
        self, restore: Tasks
    ) -> None:
        *_, failed = restore("write-delta 1", "codec gzip", "restore 1")
        assert failed.startswith(
            "CowStateException spark.sql.streaming.stateStore.compression.codec is 'gzip'; allowed "
            "are lz4, lzf, snappy, zstd"
        )

    def test_commits_ask_once_whether_the_directory_is_there(self, restore: Tasks) -> None:
        assert restore("write 5", "exists-calls")[-1] in ("0", "1")


class TestAdoptedVersions:
    """Versions 1 and 2 are deltas of Spark's own provider; versions 3 and 4 build on the deltas."""

    @pytest.fixture(autouse=True)
    def adopted(self, provider_jvm: ProviderJvm, tasks: Tasks, tmp_path: Path) -> None:
        provider_jvm.results("RestoreScript", tmp_path / STATE, "write-delta 1", "write-delta 2")
        tasks(START, *batch(2, 3), *batch(3, 4))

    def test_have_their_changes_in_deltas(self, tasks: Tasks) -> None:
        lines = ["changes 3 4", "changes 2 4", "changes 1 2"]
        _, later, across, within = tasks(START, *lines)
        assert later == "2:1=1:3 3:1=1:4"
        assert across == f"1:2=1:2 {later}"
        assert within == "0:1=1:1 1:2=1:2"

    def test_without_a_delta_have_none_and_the_error_says_from_when_on_there_are(
        self, tasks: Tasks, tmp_path: Path
    ) -> None:
        (tmp_path / STATE / "1.delta").rename(tmp_path / STATE / "1.snapshot")
        lines = [START, "changes 2 4", "changes 1 4", "message changes 1 2"]
        _, later, across, within = tasks(*lines)
        assert later == "1:2=1:2 2:1=1:3 3:1=1:4"
        assert across == "error CANNOT_LOAD_STATE_STORE.UNCATEGORIZED by CowStateException"
        assert "version 2, which batch 1 made, are not known: it was adopted" in within
        assert "a change feed from batch 2 on: set changeStartBatchId" in within

    def test_are_not_replayed_from_a_snapshot_that_is_not_there(self, tasks: Tasks) -> None:
        lines = ["entries 4", "replay 1 4", "replay 2 4"]
        error = (
            "error CANNOT_LOAD_STATE_STORE.UNCATEGORIZED "
            "by CANNOT_LOAD_STATE_STORE.CANNOT_READ_MISSING_SNAPSHOT_FILE"
        )
        assert tasks(START, *lines)[1:] == ["1=1:4 2=1:2", error, error]


class TestVersionsWithoutAChangelog:
    SNAPSHOTS = f"{START} stateStore.minDeltasForSnapshot=1"

    def message(self, run: Tasks, line: str) -> str:
        told: str = run(START, f"message {line}")[-1]
        return told

    def delete(self, root: Path, version: int, kind: str = "changelog") -> None:
        (file,) = (root / STATE).glob(f"{version:019d}-*.{kind}.arrow")
        file.unlink()

    def test_have_no_changes_and_the_error_says_from_when_on_there_are(
        self, run: Tasks, tmp_path: Path
    ) -> None:
        run(self.SNAPSHOTS, *batch(0, 1), *batch(1, 2), "maintain")
        self.delete(tmp_path, 1)
        self.delete(tmp_path, 2)
        alone = self.message(run, "changes 2 2")
        assert "changes of version 2, which batch 1 made, are not known" in alone
        assert (
            "converted by cowstate adopt or rescale, or its changelog was merged or deleted"
            in alone
        )
        assert "feed from the next batch on" in alone
        run(START, *batch(2, 3))
        below = self.message(run, "changes 2 3")
        assert "version 2," in below
        assert "feed from batch 2 on: set changeStartBatchId" in below
        assert run(START, "changes 3 3")[-1] == "2:1=1:3"

    def test_are_told_from_versions_whose_files_are_lost(self, run: Tasks, tmp_path: Path) -> None:
        run(START, *batch(0, 1), *batch(1, 2))
        self.delete(tmp_path, 1)
        for line in ("changes 1 2", "entries 2"):
            told = self.message(run, line)
            assert "version 1 with id" in told
            assert "whose files are missing. Restore them from a copy, or restart" in told
            assert '"Restart from an earlier batch" (stop the query;' in told

    def test_a_newest_version_that_is_gone_is_lost(self, run: Tasks, tmp_path: Path) -> None:
        run(START, *batch(0, 1), *batch(1, 2))
        self.delete(tmp_path, 2)
        told = self.message(run, "entries 2")
        assert "The files that batch 1 wrote are lost: restore them from a copy" in told
        assert "restart the query from batch 1 or an earlier one" in told
        assert "adopt" not in told

    def test_a_directory_without_files_may_be_another_providers(self, run: Tasks) -> None:
        told = self.message(run, "entries 2")
        assert "run: cowstate adopt" in told
        assert "restore them from a copy" in told


class TestSnapshots:
    def test_one_of_a_later_format_is_an_error_and_not_passed_over(
        self, run: Tasks, tmp_path: Path
    ) -> None:
        minimum = "stateStore.minDeltasForSnapshot=1"
        run(f"{START} {minimum}", *batch(0, 1), "maintain")
        (snapshot,) = (tmp_path / STATE).glob("*.snapshot.arrow")
        data = bytearray(snapshot.read_bytes())
        data[value_place(bytes(data), b"cowstate.format")] = ord("2")
        snapshot.write_bytes(sealed(bytes(data)))
        message = run(START, "message entries 1")[-1]
        assert f"{snapshot.name} has format 2; this release reads 1" in message


class TestAStoreThatIsOpened:
    def test_after_a_reader_has_the_readers_store_and_version(self, tasks: Tasks) -> None:
        lines = [START, *batch(0, 1), *batch(1, 2), "read 1", "message upgrade 2", "upgrade 1"]
        told, upgraded = tasks(*lines)[-2:]
        assert "cannot write version 2 after a reader of" in told
        assert told.endswith("version 1")
        assert upgraded == ""

    def test_by_a_task_that_fails_at_once_may_be_opened_again(self, tasks: Tasks) -> None:
        lines = [START, *batch(0, 1), "fail-listener", "begin 1", "attempt 1", *batch(1, 2)]
        *_, failed, _, _, _, committed, entries = tasks(*lines, "entries 2")
        assert failed.startswith("error")
        assert (committed, entries) == ("", "1=1:2")

    def test_by_a_run_is_forgotten_when_spark_closes_the_provider(self, run: Tasks) -> None:
        lines = [START, *batch(0, 1), "is-held-elsewhere", "close", "is-held-elsewhere"]
        held, _, later = run(*lines)[-3:]
        assert (held, later) == ("true", "false")


def test_a_snapshot_of_a_version_that_was_undone_makes_no_other_one_superfluous(run: Tasks) -> None:
    """A restore of the batch that ran again cannot use the snapshot."""
    many = [START + " stateStore.minDeltasForSnapshot=2", "begin 0", "put 1-3000 9:1", "commit"]
    undone = [*many, *batch(1, 2), "write-if-due", "files snapshot", "begin 1", "put 2 1:3"]
    lines = [*undone, "commit", "write-if-due", "files snapshot", *batch(2, 3), "write-if-due"]
    results = run(*lines, "files snapshot")
    assert results[8] == "1"
    assert results[-1] == "2"


def test_a_provider_is_closed_while_it_restores(run: Tasks, tmp_path: Path) -> None:
    """Spark closes providers while all stores of the executor wait."""
    run(START, *batch(0, 1))
    (changelog,) = (tmp_path / STATE).glob("*.changelog.arrow")
    changelog.unlink()
    os.mkfifo(changelog)
    line = f"close-beside-restore 1 {changelog}"
    assert run(START, line) == ["", "closed"]
