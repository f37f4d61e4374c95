"""The promises of every change of a stopped query's checkpoint, shown by the commands.

A dry run changes nothing. A change that stops at any write can be undone, and an applied change can
be undone to the byte. Neither overwrites what others have written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from cowstate.cli.command_line import main
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from tests.support.provider.adopted_operators import (
    BATCHES,
    AdoptedJob,
    EveryTimedState,
    store_of,
)
from tests.support.provider.adoption_jobs import (
    AGGREGATION,
    Adopted,
    contents,
    copied,
    set_in_log,
)
from tests.support.provider.provider_jobs import COWSTATE, HDFS, ROCKSDB, THROUGH_MANAGER
from tests.support.provider.stopped_changes import StoppedError, stop_after

pytestmark = pytest.mark.spark

CHANGING = {
    CheckpointFiles: [
        *("write_text", "copy", "move", "delete"),
        *("start_conversion", "start_rescaling", "discard_rescaled"),
    ],
    CompletedCheckpointStore: ["publish_barrier", "complete"],
}
CHANGES = {
    "from hdfs": ("adopt", HDFS),
    "from rocksdb": ("adopt", ROCKSDB),
    "to hdfs": ("adopt", COWSTATE, "--to", "hdfs"),
    "to a store": ("adopt", ROCKSDB, "--store"),
    "of an operator": ("adopt", "transformWithState"),
    "to more partitions": ("rescale", COWSTATE, "--partitions", "5"),
}

IN_THE_WAY = "undo it first: cowstate .* --revert"
NOTHING_TO_DO = r"(on|has) .*already"
MOVED_AGAIN = "^"
# By the exit code of a second change, and by the effect of the change before it.
ANSWERS = {(2, False): IN_THE_WAY, (2, True): NOTHING_TO_DO, (0, True): MOVED_AGAIN}


@dataclass(frozen=True)
class StoppedQuery:
    """A stopped query, and the command that changes its checkpoint. `store`: the place of the new
    state, if that is not the checkpoint."""

    command: str
    checkpoint: Path
    options: tuple[str, ...]
    store: Path

    def apply(self) -> int:
        return self.run(*self.options, "--apply", "--force")

    def revert(self) -> int:
        return self.run("--revert", "--force")

    def run(self, *arguments: str) -> int:
        return main([self.command, str(self.checkpoint), *arguments])

    @property
    def is_begun(self) -> bool:
        return (self.checkpoint / f"_cowstate_{self.command}").exists()

    def contents(self) -> list[dict[str, bytes]]:
        return [contents(self.checkpoint), contents(self.store)]

    def stamps(self) -> dict[Path, int]:
        return {file: file.stat().st_mtime_ns for file in self.checkpoint.rglob("*")}

    def has_effect(self, entry: bytes) -> bool:
        """Return True if the query would go on after the change. `entry`: the last entry of the
        offset log before the change."""
        if self.store.name == "operator-0":
            return not (self.checkpoint / "state").exists()
        return self.last_entry().read_bytes() != entry

    def last_entry(self) -> Path:
        return max((self.checkpoint / "offsets").glob("[0-9]*"))


@pytest.fixture(scope="module")
def ran(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Adopted | AdoptedJob]:
    """Queries that ran on a provider, or on Spark's operator; each test gets a copy."""

    @cache
    def run(provider: str) -> Adopted | AdoptedJob:
        folder = tmp_path_factory.mktemp("ran")
        if provider == "transformWithState":
            job = AdoptedJob(spark, folder, EveryTimedState(), "ProcessingTime")
            for rows in BATCHES[:2]:
                job.feed(rows)
                job.on_spark()
            return job
        query = Adopted.new(spark, AGGREGATION, provider, folder, THROUGH_MANAGER)
        query.go_on(3)
        return query

    return run


@pytest.fixture(params=CHANGES)
def query(
    request: pytest.FixtureRequest,
    ran: Callable[[str], Adopted | AdoptedJob],
    tmp_path: Path,
) -> StoppedQuery:
    command, provider, *options = CHANGES[request.param]
    done, store = ran(provider), tmp_path / "store"
    if isinstance(done, AdoptedJob):
        job = done.copy(tmp_path / "job")
        operator = Path(store_of(job).removeprefix("file://"))
        return StoppedQuery(command, job.checkpoint, (), operator)
    if options == ["--store"]:
        options.append(store.as_uri())
    checkpoint = copied(done.checkpoint, tmp_path / "checkpoint")
    return StoppedQuery(command, checkpoint, tuple(options), store)


def test_a_dry_run_changes_nothing(query: StoppedQuery, capsys: pytest.CaptureFixture[str]) -> None:
    before, stamps = query.contents(), query.stamps()
    assert query.run(*query.options, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["applied"], report["checkpoint"]) == (False, f"file:{query.checkpoint}")
    assert report["query"] == json.loads((query.checkpoint / "metadata").read_text())["id"]
    assert report["changed"]
    assert (query.contents(), query.stamps()) == (before, stamps)


def test_an_applied_change_is_undone_to_the_byte_and_then_there_is_none_to_undo(
    query: StoppedQuery, capsys: pytest.CaptureFixture[str]
) -> None:
    before = query.contents()
    assert query.apply() == 0
    assert query.contents() != before
    table = re.findall(r"^(\w.{11})(.+?)  +(\S.*)$", capsys.readouterr().out, re.MULTILINE)
    assert query.revert() == 0
    assert query.contents() == before
    told = capsys.readouterr().out
    for name, held, holds in table:
        if not name.startswith(("Checkpoint", "Query", "Next batch")):
            assert re.search(rf"^{name}{re.escape(holds)}  +{re.escape(held)}$", told, re.M)
    assert query.revert() == 2
    assert "to revert: none was applied" in capsys.readouterr().err
    assert query.apply() == 0


def test_a_change_that_stops_at_any_write_is_undone_and_a_second_one_succeeds(
    query: StoppedQuery, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before its effect, a stopped change is in the way of a second one. After its effect, the
    second change finds nothing to do, except a move to a store, which moves the state again."""
    before, entry = query.contents(), query.last_entry().read_bytes()
    answers = list[str]()
    for writes in range(100):
        with monkeypatch.context() as patch:
            stop_after(patch, writes, CHANGING)
            try:
                assert query.apply() == 0
                break
            except StoppedError:
                pass
        if query.is_begun:
            has_effect = query.has_effect(entry)
            capsys.readouterr()
            answers.append(ANSWERS[query.apply(), has_effect])
            assert re.search(answers[-1], capsys.readouterr().err), f"stopped after {writes} writes"
            if answers[-1] == MOVED_AGAIN:
                assert query.revert() == 0
            assert query.revert() == 0
        assert query.contents() == before, f"stopped after {writes} writes"
    last = MOVED_AGAIN if "--store" in query.options else NOTHING_TO_DO
    assert list(dict.fromkeys(answers)) == [IN_THE_WAY, last]
    assert query.contents() != before


def test_a_query_that_runs_meanwhile_is_not_changed(
    query: StoppedQuery, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, copy = query.contents(), CheckpointFiles.copy
    last = query.last_entry()
    planned = last.with_name(str(int(last.name) + 1))

    def plan_a_batch(self: CheckpointFiles, source: str, target: str) -> None:
        copy(self, source, target)
        planned.write_text("v1")

    monkeypatch.setattr(CheckpointFiles, "copy", plan_a_batch)
    assert query.apply() == 2
    assert "the query is running. Nothing was changed" in capsys.readouterr().err
    planned.unlink()
    assert query.contents() == before


def test_a_file_that_somebody_else_edited_is_not_put_back(
    query: StoppedQuery, capsys: pytest.CaptureFixture[str]
) -> None:
    assert query.apply() == 0
    set_in_log(query.last_entry(), "spark.sql.made.up", "true")
    assert query.revert() == 2
    assert " was changed after _cowstate_" in capsys.readouterr().err
