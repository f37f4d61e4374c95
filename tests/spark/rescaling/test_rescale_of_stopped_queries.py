"""`cowstate rescale` reports, refuses and changes the right things in a stopped query's
checkpoint."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from cowstate.cli.command_line import main
from spark_state.errors import ConfigurationError
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from tests.support.applications.lost_commits import delete, forget_last_commit
from tests.support.provider.adoption_jobs import (
    AGGREGATION,
    SNAPSHOTS,
    Adopted,
    contents,
    copied,
    damage,
)
from tests.support.provider.provider_jobs import COWSTATE, THROUGH_MANAGER, maintenance_of
from tests.support.provider.rescaled_jobs import rescale, rescaled, revert
from tests.support.provider.stopped_changes import StoppedError, stop_after

pytestmark = pytest.mark.spark

Stopped = Callable[..., Path]


@pytest.fixture(scope="module")
def stopped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """Build the checkpoint of a query that ran three batches; each test gets a copy."""

    @cache
    def ran(snapshots: bool) -> Path:
        folder = tmp_path_factory.mktemp("stopped")
        settings = SNAPSHOTS if snapshots else THROUGH_MANAGER
        query = Adopted.new(spark, AGGREGATION, COWSTATE, folder, settings)
        with maintenance_of(spark):
            query.go_on(3)
        return query.checkpoint

    def copy(folder: Path, snapshots: bool = False) -> Path:
        return copied(ran(snapshots), folder / "checkpoint")

    return copy


@pytest.fixture
def checkpoint(stopped: Stopped, tmp_path: Path) -> Path:
    return stopped(tmp_path)


def refused(
    checkpoint: Path,
    message: str,
    capsys: pytest.CaptureFixture[str],
    dry: bool = True,
) -> None:
    """Assert that the command fails with a message and changes nothing. `dry`: also for a dry
    run."""
    before = contents(checkpoint)
    for apply in ([], ["--apply", "--force"]) if dry else (["--apply", "--force"],):
        assert rescale(checkpoint, 5, *apply) == 2
        error = capsys.readouterr().err
        assert re.search(message, error), error
    assert contents(checkpoint) == before


def plan_last_batch_anew(checkpoint: Path) -> bytes:
    """Plan the last batch again, like a query that begins anew with the former number of partitions
    after batch 2. Return the plan."""
    (saved,) = checkpoint.glob("_cowstate_rescale/*/files/offsets/3")
    anew = saved.read_bytes() + b"\nplanned anew"
    delete(checkpoint / "offsets" / "3")
    delete(checkpoint / "commits" / "3")
    (checkpoint / "offsets" / "3").write_bytes(anew)
    return anew


class TestDryRun:
    def test_it_says_what_it_found(
        self, checkpoint: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert rescale(checkpoint, 5) == 0
        text = capsys.readouterr().out
        assert rescale(checkpoint, 5, "--json") == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["from"], report["to"], report["applied"]) == (2, 5, False)
        (operator,) = report["rescaled"]
        assert operator["key"] == ["window", "key"]
        assert operator["bytes"] > 1000
        assert report["edits"] == ["state/0/_metadata/metadata", "offsets/3"]
        for part in (
            "Partitions  2    5\n",
            "deal out the rows of version 4 of operator 0 by the hash of window, key: 2 partitions "
            "of a store, ",
            "set spark.sql.shuffle.partitions = 5 in state/0/_metadata/metadata, offsets/3",
        ):
            assert part in text


class TestRefusals:
    def test_no_number_and_a_number_too_many(
        self, checkpoint: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["rescale", str(checkpoint)]) == 2
        assert "--partitions is missing" in capsys.readouterr().err
        assert rescale(checkpoint, 3, "--revert") == 2
        assert "leave --partitions out" in capsys.readouterr().err

    def test_rows_that_are_not_where_their_hash_puts_them(
        self, checkpoint: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        first, second = (checkpoint / "state" / "0" / number for number in "01")
        for file in [*first.glob("*.arrow")]:
            file.unlink()
        for file in second.glob("*.arrow"):
            shutil.copy(file, first / file.name)
        message = "state/0/0: a row belongs to partition 1 by Spark's hash of its key"
        refused(checkpoint, message, capsys, dry=False)

    def test_an_adoption_that_was_killed(
        self,
        stopped: Stopped,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        checkpoint = stopped(tmp_path)
        with monkeypatch.context() as patch:
            stop_after(patch, 2, {CheckpointFiles: ["write_text", "copy", "move", "delete"]})
            with pytest.raises(StoppedError):
                main(["adopt", str(checkpoint), "--to", "hdfs", "--apply", "--force"])
        message = "belongs to the adoption that is running or was killed.*cowstate adopt --revert"
        refused(checkpoint, message, capsys, dry=False)


class TestFilesThatAreGone:
    def test_the_changelog_of_the_last_batch(
        self, checkpoint: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for file in (checkpoint / "state/0/1").glob(f"{4:019}-*"):
            file.unlink()
        refused(checkpoint, "state/0/1: The state of version 4 does not exist", capsys, dry=False)

    def test_the_schema(self, checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
        delete(checkpoint / "state/0/0/_metadata/schema")
        refused(checkpoint, "_metadata/schema is missing, so the types", capsys)

    @pytest.mark.parametrize("kind", ["changelog", "snapshot"])
    def test_a_damaged_file(
        self, stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
    ) -> None:
        checkpoint = stopped(tmp_path, snapshots=True)
        for partition in "01":
            victim = max((checkpoint / "state/0" / partition).glob(f"*.{kind}.arrow"))
            damage(victim)
        message = rf"state/0/[01]: .*\.{kind}\.arrow is damaged.*Restore the file from a copy"
        refused(checkpoint, message, capsys, dry=False)


class TestFilesThatCannotBeWritten:
    def test_a_new_partition(self, checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (checkpoint / "state" / "0" / "3").write_text("in the way")
        message = r"state/0/3: .*rescaled\.arrow cannot be written: .*Exist.*Nothing was changed"
        refused(checkpoint, message, capsys, dry=False)

    @pytest.mark.parametrize(
        ("failure", "code", "message"),
        [
            ("refused", 2, "cannot be written"),
            ("jvm", 2, "cannot be used: .*FileNotFound.*no-such-file"),
            ("interrupt", 130, "stopped"),
        ],
    )
    def test_nothing_from_some_moment_on(
        self,
        failure: str,
        code: int,
        message: str,
        checkpoint: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        before = contents(checkpoint)
        with monkeypatch.context() as patch:
            patch.setattr(CheckpointFiles, "copy", FAILURES[failure])
            patch.setattr(CheckpointFiles, "discard_rescaled", fail_in_the_jvm)
            assert rescale(checkpoint, 5, "--apply", "--force") == code
        told = capsys.readouterr().err
        assert re.search(f"cowstate: .*{message}", told)
        assert re.search(r"could not be undone: \S*FileNotFoundException: .*no-such-file", told)
        assert "checkpoint is as it was" not in told
        (command,) = re.findall(r"undo it: (cowstate rescale --revert \S+)", told)
        refused(checkpoint, "rescale that is running or was killed", capsys, dry=False)
        assert main([*command.split()[1:], "--force"]) == 0
        assert contents(checkpoint) == before


def fail_in_the_jvm(files: CheckpointFiles, *_: object) -> None:
    files.read_text("no-such-file")


def refuse(*_: object) -> None:
    raise ConfigurationError("the disk cannot be written")


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


FAILURES = {"refused": refuse, "jvm": fail_in_the_jvm, "interrupt": interrupt}


class TestUndo:
    @pytest.mark.parametrize("ended", ["reverted", "applied"])
    def test_what_killed_edits_have_left_is_deleted_and_nothing_else(
        self, checkpoint: Path, ended: str
    ) -> None:
        unique = "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"
        before = set(contents(checkpoint))
        rescaled(checkpoint, 5)
        left = [
            checkpoint / "offsets" / f".3.{unique}.TID7.tmp",
            checkpoint / "state/0/_metadata" / f".metadata.{unique}.tmp",
        ]
        others = [checkpoint / "offsets" / f".4.{unique}.tmp", checkpoint / "offsets" / ".3.tmp"]
        for file in [*left, *others]:
            file.write_text("cut")
        if ended == "reverted":
            revert(checkpoint)
        else:
            rescaled(checkpoint, 3)
        assert [file for file in [*left, *others] if file.exists()] == others
        if ended == "reverted":
            assert set(contents(checkpoint)) == before | {f"offsets/{file.name}" for file in others}

    def test_the_last_of_several_first(self, checkpoint: Path) -> None:
        states = [contents(checkpoint)]
        for number in (5, 3, 4):
            rescaled(checkpoint, number)
            states.append(contents(checkpoint))
        for state in reversed(states[:-1]):
            revert(checkpoint)
            assert contents(checkpoint) == state
        folders = sorted(path.name for path in (checkpoint / "state" / "0").iterdir())
        assert folders == [*"01", "_metadata"]

    def test_what_came_later_is_undone_first(
        self, checkpoint: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rescaled(checkpoint, 5)
        assert main(["adopt", str(checkpoint), "--to", "hdfs", "--apply", "--force"]) == 0
        assert main(["rescale", str(checkpoint), "--revert", "--force"]) == 2
        told = capsys.readouterr().err
        assert "is later than the last rescale. Undo that first: cowstate adopt --revert" in told
        assert main(["adopt", str(checkpoint), "--revert", "--force"]) == 0
        revert(checkpoint)

    def test_a_batch_that_was_planned_anew_stays(self, checkpoint: Path) -> None:
        before = contents(checkpoint)
        rescaled(checkpoint, 5)
        anew = plan_last_batch_anew(checkpoint)
        revert(checkpoint)
        after = contents(checkpoint)
        assert after.pop("offsets/3") == anew
        assert after == {path: before[path] for path in after}
        assert not [*checkpoint.rglob("*.rescaled.arrow")]

    def test_a_rescale_before_a_batch_that_was_planned_anew_is_past(self, checkpoint: Path) -> None:
        rescaled(checkpoint, 5)
        plan_last_batch_anew(checkpoint)
        rescaled(checkpoint, 4)
        newest = (checkpoint / "offsets" / "3").read_text()
        assert json.loads(newest.split("\n")[1])["conf"]["spark.sql.shuffle.partitions"] == "4"
        assert newest.endswith("planned anew")


def test_spark_refuses_to_run_the_batch_before_a_rescale_again_with_the_new_number(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = Adopted.new(spark, AGGREGATION, COWSTATE, tmp_path, THROUGH_MANAGER)
    query.go_on(3)
    rescaled(query.checkpoint, 5)
    again = forget_last_commit(query.checkpoint)
    with pytest.raises(StreamingQueryException, match="UNFINISHED_REPARTITION"):
        query.run.run([], [])
    (saved,) = query.checkpoint.glob(f"_cowstate_rescale/*/files/offsets/{again}")
    delete(query.checkpoint / "offsets" / str(again))
    shutil.copy(saved, query.checkpoint / "offsets" / str(again))
    query.run.outputs.pop(again)
    query.run.run([], [])
    assert query.run.outputs[again]
