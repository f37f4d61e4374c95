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
from tests.support.provider.stopped_checkpoints import log_entry, operator_with

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
    """Make a checkpoint with three done batches; the next batch starts from version 3."""
    stopped = QueryCheckpoint(
        url="file:/q",
        query_id="q",
        planned=2,
        committed=2,
        offsets={number: planned_with(number, provider) for number in (1, 2)},
        commit=log_entry("commits/2", {}),
        operators=(operator_with(),),
        files=deltas(range(1, 4)) if provider == HDFS_CLASS else (),
    )
    return replace(stopped, **changes)


def paths(entries: tuple[LogEntry, ...]) -> list[str]:
    return [entry.path for entry in entries]


class TestWhatItTakes:
    def test_from_hdfs_nothing_is_converted_and_the_last_two_batches_are_edited(self) -> None:
        plan = plan_adoption(checkpoint(), "cowstate")
        assert plan.target == PROVIDER_CLASS
        assert plan.conversions == ()
        assert paths(plan.edits) == ["offsets/1", "offsets/2"]
        assert plan.removals == ()

    def test_from_rocksdb_every_store_is_converted_and_the_last_batch_is_edited(self) -> None:
        stopped = checkpoint(ROCKSDB_CLASS)
        plan = plan_adoption(stopped, "cowstate")
        assert plan.conversions == stopped.directories
        assert paths(plan.edits) == ["offsets/2"]

    def test_back_to_hdfs_every_store_is_converted(self) -> None:
        stopped = checkpoint(PROVIDER_CLASS)
        plan = plan_adoption(stopped, "hdfs")
        assert plan.target == HDFS_CLASS
        assert plan.conversions == stopped.directories

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
        ("provider", "edited"),
        [(PROVIDER_CLASS, []), (HDFS_CLASS, ["offsets/2"]), (ROCKSDB_CLASS, ["offsets/2"])],
    )
    def test_a_state_is_written_anew_whoever_wrote_it(
        self, provider: str, edited: list[str]
    ) -> None:
        files = (changelog(3), changelog(4), *deltas(range(1, 4)))
        plan = plan_adoption(checkpoint(provider, files=files), "cowstate", self.URL, "attempt")
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

    def test_a_copy_of_a_checkpoint_may_be_told_the_store_that_it_names(self) -> None:
        stopped = checkpoint(PROVIDER_CLASS, place=StatePlace(self.URL, "q"))
        plan = plan_adoption(stopped, "cowstate", self.URL, "attempt")
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

    def test_hdfs_keeps_its_state_in_the_checkpoint(self) -> None:
        with pytest.raises(ConfigurationError, match=r"--to hdfs goes on with .*leave --store out"):
            plan_adoption(checkpoint(PROVIDER_CLASS), "hdfs", self.URL, "attempt")

    def test_a_state_that_is_in_the_checkpoint_does_not_move_there(self) -> None:
        with pytest.raises(ConfigurationError, match="is in the checkpoint already"):
            plan_adoption(checkpoint(PROVIDER_CLASS), "cowstate", IN_CHECKPOINT)


class TestRefusals:
    @pytest.mark.parametrize(
        ("provider", "to", "message"),
        [
            (PROVIDER_CLASS, "cowstate", "on CowStateStoreProvider already.*--to hdfs"),
            (HDFS_CLASS, "hdfs", "on HDFSBackedStateStoreProvider already.*without --to"),
        ],
    )
    def test_a_query_that_is_there_already(self, provider: str, to: str, message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            plan_adoption(checkpoint(provider), to)

    @pytest.mark.parametrize("to", ["cowstate", "hdfs"])
    def test_a_provider_that_is_not_known(self, to: str) -> None:
        with pytest.raises(UnsupportedOperationError, match="provider com-example, which adopt"):
            plan_adoption(checkpoint("com-example"), to)

    def test_from_rocksdb_to_hdfs(self) -> None:
        with pytest.raises(UnsupportedOperationError, match="only goes back from cowstate"):
            plan_adoption(checkpoint(ROCKSDB_CLASS), "hdfs")

    def test_an_operator_that_only_rocksdb_has(self) -> None:
        stopped = checkpoint(ROCKSDB_CLASS, operators=(operator_with("transformWithStateExec"),))
        with pytest.raises(
            UnsupportedOperationError, match="operator 0 of file:/q is transformWithStateExec"
        ):
            plan_adoption(stopped, "cowstate")

    @pytest.mark.parametrize("version", ["3", "4"])
    def test_a_join_of_a_newer_format(self, version: str) -> None:
        stopped = checkpoint(
            operators=(operator_with("symmetricHashJoin"),),
            offsets={2: planned_with(2, HDFS_CLASS, **{JOIN_FORMAT: version})},
        )
        with pytest.raises(
            UnsupportedOperationError, match=f"join with .* = {version}, which only"
        ):
            plan_adoption(stopped, "cowstate")

    @pytest.mark.parametrize("version", ["1", "2"])
    def test_joins_of_older_formats_are_taken(self, version: str) -> None:
        stopped = checkpoint(
            operators=(operator_with("symmetricHashJoin"),),
            offsets={2: planned_with(2, HDFS_CLASS, **{JOIN_FORMAT: version})},
        )
        assert paths(plan_adoption(stopped, "cowstate").edits) == ["offsets/2"]

    def test_an_encoding_that_is_not_read(self) -> None:
        avro = {f"{STATE_STORE}.encodingFormat": "avro"}
        stopped = checkpoint(offsets={2: planned_with(2, HDFS_CLASS, **avro)})
        with pytest.raises(
            UnsupportedOperationError, match="encodingFormat = avro, but adopt reads"
        ):
            plan_adoption(stopped, "cowstate")

    def test_checkpoint_format_2_does_not_go_back_to_hdfs(self) -> None:
        commit = log_entry("commits/2", {"stateUniqueIds": {"0": [[UNIQUE], [UNIQUE]]}})
        stopped = checkpoint(PROVIDER_CLASS, commit=commit)
        with pytest.raises(UnsupportedOperationError, match="has checkpoint format 2"):
            plan_adoption(stopped, "hdfs")
