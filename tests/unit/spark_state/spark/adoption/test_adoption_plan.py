"""The plan of adopting a checkpoint follows from the facts read, without session or files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from checkpoint_store.provider.state_place import StatePlace
from spark_state.errors import ConfigurationError, UnsupportedOperationError
from spark_state.spark.adoption.adoption_plan import (
    HDFS_CLASS,
    IN_CHECKPOINT,
    plan_adoption,
)
from spark_state.spark.provider.checkpoint_files import CheckpointFile
from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY, ROCKSDB_CLASS
from spark_state.spark.provider.query_checkpoint import LogEntry, QueryCheckpoint
from tests.support.provider.stopped_checkpoints import log_entry, operator_with, stopped_checkpoint

STATE_STORE = "spark.sql.streaming.stateStore"
JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
UNIQUE = "0123456789abcdef"


def planned_with(number: int, provider: str, **settings: str) -> LogEntry:
    return log_entry(f"offsets/{number}", {"conf": {PROVIDER_KEY: provider, **settings}})


def state_file(name: str, partition: int = 0) -> CheckpointFile:
    return CheckpointFile(f"state/0/{partition}/{name}", 100, 1)


def changelog(version: int, partition: int = 0) -> CheckpointFile:
    return state_file(f"{version:019d}-{1:010d}-{UNIQUE}-0.changelog.arrow", partition)


def deltas(versions: range) -> tuple[CheckpointFile, ...]:
    return tuple(
        state_file(f"{version}.delta", partition) for version in versions for partition in range(2)
    )


def checkpoint(provider: str = HDFS_CLASS, **changes: Any) -> QueryCheckpoint:
    """Make a checkpoint whose next batch starts from version 3."""
    offsets = {number: planned_with(number, provider) for number in (1, 2)}
    files = deltas(range(1, 4)) if provider == HDFS_CLASS else ()
    return stopped_checkpoint(**{"offsets": offsets, "files": files, **changes})


def paths(entries: tuple[LogEntry, ...]) -> list[str]:
    return [entry.path for entry in entries]


class TestWhatItTakes:
    @pytest.mark.parametrize(
        ("provider", "to", "target", "is_converted", "edited"),
        [
            (HDFS_CLASS, "cowstate", PROVIDER_CLASS, False, ["offsets/1", "offsets/2"]),
            (ROCKSDB_CLASS, "cowstate", PROVIDER_CLASS, True, ["offsets/2"]),
            (PROVIDER_CLASS, "hdfs", HDFS_CLASS, True, ["offsets/2"]),
        ],
    )
    def test_stores_are_converted_unless_cowstate_reads_them_and_newest_batches_are_edited(
        self, provider: str, to: str, target: str, is_converted: bool, edited: list[str]
    ) -> None:
        stopped = checkpoint(provider)
        plan = plan_adoption(stopped, to)
        assert plan.target == target
        assert plan.conversions == (stopped.directories if is_converted else ())
        assert paths(plan.edits) == edited
        assert plan.removals == ()

    def test_a_batch_that_was_planned_and_not_done_is_edited_with_the_one_before_it(self) -> None:
        offsets = {number: planned_with(number, ROCKSDB_CLASS) for number in (2, 3)}
        plan = plan_adoption(checkpoint(ROCKSDB_CLASS, planned=3, offsets=offsets), "cowstate")
        assert paths(plan.edits) == ["offsets/2", "offsets/3"]

    def test_a_query_whose_first_batch_is_not_done_has_nothing_to_convert(self) -> None:
        offsets = {0: planned_with(0, ROCKSDB_CLASS)}
        begun = checkpoint(ROCKSDB_CLASS, planned=0, committed=None, commit=None, offsets=offsets)
        plan = plan_adoption(begun, "cowstate")
        assert plan.conversions == ()
        assert paths(plan.edits) == ["offsets/0"]

    def test_a_batch_that_another_provider_planned_stays_as_it_is(self) -> None:
        offsets = {1: planned_with(1, PROVIDER_CLASS), 2: planned_with(2, HDFS_CLASS)}
        assert paths(plan_adoption(checkpoint(offsets=offsets), "cowstate").edits) == ["offsets/2"]

    def test_files_of_the_version_to_continue_and_later_ones_are_removed(self) -> None:
        older, newer = changelog(2), (changelog(3), changelog(4, partition=1))
        stopped = checkpoint(files=(*deltas(range(1, 4)), older, *newer))
        assert plan_adoption(stopped, "cowstate").removals == newer

    def test_on_the_way_back_the_files_of_hdfs_are_removed_and_those_of_cowstate_stay(self) -> None:
        files = (*deltas(range(2, 4)), changelog(3))
        plan = plan_adoption(checkpoint(PROVIDER_CLASS, files=files), "hdfs")
        assert plan.removals == deltas(range(3, 4))

    def test_an_edited_entry_names_the_other_provider_and_is_else_as_it_was(self) -> None:
        plan = plan_adoption(checkpoint(), "cowstate")
        (_, entry) = plan.edits
        assert plan.edited(entry) == entry.text.replace(HDFS_CLASS, PROVIDER_CLASS)


class TestHdfsFiles:
    def test_a_snapshot_stands_for_the_deltas_before_it(self) -> None:
        files = tuple(
            state_file(name, partition)
            for partition in range(2)
            for name in ("2.snapshot", "3.delta")
        )
        assert plan_adoption(checkpoint(files=files), "cowstate").conversions == ()

    @pytest.mark.parametrize("lost", [1, 2, 3])
    def test_a_missing_delta_is_refused(self, lost: int) -> None:
        files = tuple(
            file for file in deltas(range(1, 4)) if file.path != f"state/0/1/{lost}.delta"
        )
        with pytest.raises(
            UnsupportedOperationError,
            match=rf"state/0/1/{lost}\.delta is missing, and no later .*version 3,.*from a copy",
        ):
            plan_adoption(checkpoint(files=files), "cowstate")


class TestStores:
    URL = "s3://bucket/states"
    FORMER = StatePlace("s3://former/states", "q")

    @pytest.mark.parametrize(
        ("provider", "place", "edited"),
        [
            (PROVIDER_CLASS, None, []),
            (PROVIDER_CLASS, StatePlace(URL, "q"), []),  # a copy of a checkpoint
            (HDFS_CLASS, None, ["offsets/2"]),
            (ROCKSDB_CLASS, None, ["offsets/2"]),
        ],
    )
    def test_a_state_is_written_anew_whoever_wrote_it(
        self, provider: str, place: StatePlace | None, edited: list[str]
    ) -> None:
        files = (changelog(3), changelog(4), *deltas(range(1, 4)))
        stopped = checkpoint(provider, files=files, place=place)
        plan = plan_adoption(stopped, "cowstate", self.URL, "attempt")
        assert plan.conversions == operator_with().directories
        assert paths(plan.edits) == edited
        assert plan.removals == ()
        assert plan.place == StatePlace(self.URL, "q-attempt")
        assert not plan.leaves_store

    def test_one_that_has_no_batch_yet_is_only_told_where_it_is(self) -> None:
        begun = checkpoint(PROVIDER_CLASS, planned=0, committed=None, commit=None)
        begun = replace(begun, offsets={0: planned_with(0, PROVIDER_CLASS)})
        plan = plan_adoption(begun, "cowstate", self.URL, "attempt")
        assert (plan.conversions, plan.edits) == ((), ())
        assert plan.place == StatePlace(self.URL, "q-attempt")

    @pytest.mark.parametrize(
        ("provider", "to", "store"),
        [
            (PROVIDER_CLASS, "cowstate", IN_CHECKPOINT),
            (PROVIDER_CLASS, "hdfs", None),
            (ROCKSDB_CLASS, "cowstate", None),
            (HDFS_CLASS, "cowstate", None),
        ],
    )
    def test_a_checkpoint_that_takes_its_state_names_no_store_any_more(
        self, provider: str, to: str, store: str | None
    ) -> None:
        plan = plan_adoption(checkpoint(provider, place=self.FORMER), to, store)
        assert plan.place is None
        assert plan.leaves_store

    def test_what_cowstate_left_in_the_checkpoint_before_is_removed_on_the_way_back(self) -> None:
        files = (changelog(2), changelog(3), changelog(4))
        stopped = checkpoint(PROVIDER_CLASS, files=files, place=self.FORMER)
        assert plan_adoption(stopped, "cowstate", IN_CHECKPOINT).removals == files[1:]


JOIN = (operator_with("symmetricHashJoin"),)
AVRO = {f"{STATE_STORE}.encodingFormat": "avro"}
IDS = log_entry("commits/2", {"stateUniqueIds": {"0": [[UNIQUE], [UNIQUE]]}})
STORE_OF_HDFS = "--to hdfs goes on with .*leave --store out"


def last_batch_with(**settings: str) -> dict[int, LogEntry]:
    return {2: planned_with(2, HDFS_CLASS, **settings)}


@pytest.mark.parametrize(
    ("stopped", "to", "store", "message"),
    [
        (checkpoint(PROVIDER_CLASS), "hdfs", TestStores.URL, STORE_OF_HDFS),
        (checkpoint(PROVIDER_CLASS), "cowstate", IN_CHECKPOINT, "is in the checkpoint already"),
        (checkpoint(PROVIDER_CLASS), "cowstate", None, "CowStateStoreProvider already.*--to hdfs"),
        (checkpoint(HDFS_CLASS), "hdfs", None, "HDFSBackedStateStoreProvider already.*out --to"),
    ],
)
def test_a_wrong_request_is_refused_with_the_right_one(
    stopped: QueryCheckpoint, to: str, store: str | None, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        plan_adoption(stopped, to, store, "attempt")


@pytest.mark.parametrize(
    ("stopped", "to", "message"),
    [
        (checkpoint("com-example"), "cowstate", "provider com-example, which adopt"),
        (checkpoint("com-example"), "hdfs", "provider com-example, which adopt"),
        (checkpoint(ROCKSDB_CLASS), "hdfs", "only goes back from cowstate"),
        (
            checkpoint(ROCKSDB_CLASS, operators=(operator_with("transformWithStateExec"),)),
            "cowstate",
            "operator 0 of file:/q is transformWithStateExec",
        ),
        *(
            (
                checkpoint(operators=JOIN, offsets=last_batch_with(**{JOIN_FORMAT: version})),
                "cowstate",
                f"join with .* = {version}, which only",
            )
            for version in ("3", "4")
        ),
        (checkpoint(offsets=last_batch_with(**AVRO)), "cowstate", "= avro, but cowstate reads"),
        (checkpoint(PROVIDER_CLASS, commit=IDS), "hdfs", "has checkpoint format 2"),
    ],
)
def test_a_checkpoint_that_the_other_provider_cannot_have_is_refused(
    stopped: QueryCheckpoint, to: str, message: str
) -> None:
    with pytest.raises(UnsupportedOperationError, match=message):
        plan_adoption(stopped, to)


@pytest.mark.parametrize("version", ["1", "2"])
def test_joins_of_older_formats_are_taken(version: str) -> None:
    stopped = checkpoint(operators=JOIN, offsets=last_batch_with(**{JOIN_FORMAT: version}))
    assert paths(plan_adoption(stopped, "cowstate").edits) == ["offsets/2"]
