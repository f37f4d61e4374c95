"""The plan of another number of partitions follows from the facts read of a checkpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest

from checkpoint_store.provider.state_place import StatePlace
from spark_state.errors import ConfigurationError, UnsupportedOperationError
from spark_state.spark.adoption.adoption_plan import HDFS_CLASS
from spark_state.spark.provider.checkpoint_files import CheckpointFile
from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
from spark_state.spark.provider.query_checkpoint import LogEntry, QueryCheckpoint
from spark_state.spark.rescaling.rescale_edits import edited_paths, edits_of
from spark_state.spark.rescaling.rescale_plan import RescalePlan, plan_rescale
from tests.support.provider.stopped_checkpoints import log_entry, operator_with, stopped_checkpoint

PARTITIONS = "spark.sql.shuffle.partitions"
STRICT = "spark.sql.streaming.statefulOperator.useStrictDistribution"
ENCODING = "spark.sql.streaming.stateStore.encodingFormat"
SIDES = ("left", "right")
OPERATORS = (
    operator_with(),
    operator_with("symmetricHashJoin", 1, SIDES),
    operator_with("globalLimit", 2, partitions=1),
)
PARTITIONINGS = {
    (0, "default"): ("key",),
    (1, "left"): ("key",),
    (1, "right"): ("key",),
    (2, "default"): (),
}


def planned(number: int, **settings: str) -> LogEntry:
    conf = {PROVIDER_KEY: PROVIDER_CLASS, PARTITIONS: "2", **settings}
    return log_entry(f"offsets/{number}", {"batchWatermarkMs": 7, "conf": conf}, '{"logOffset":4}')


def state_file(directory: str, length: int) -> CheckpointFile:
    return CheckpointFile(f"{directory}/{3:019d}-{1:010d}-{'a' * 16}-0.changelog.arrow", length, 1)


def checkpoint(**changes: Any) -> QueryCheckpoint:
    """Make a checkpoint whose next batch starts from version 3."""
    directories = ("state/0/0", "state/0/1", "state/1/0/left", "state/2/0", "state/0/5")
    stopped = {
        "offsets": {number: planned(number) for number in (1, 2)},
        "operators": OPERATORS,
        "files": tuple(state_file(directory, 100) for directory in directories),
    }
    return stopped_checkpoint(**{**stopped, **changes})


def plan(target: int = 6, **changes: Any) -> RescalePlan:
    return plan_rescale(checkpoint(**changes), target, PARTITIONINGS)


def content(text: str) -> Any:
    return json.loads(text.split("\n")[1])


OLD_ENTRY = log_entry("offsets/2", {"conf": {PROVIDER_KEY: PROVIDER_CLASS}})


class TestPlan:
    def test_operators_whose_rows_go_by_a_key_are_rescaled_and_others_stay(self) -> None:
        rescaled = plan()
        assert (rescaled.partitions, rescaled.target) == (2, 6)
        assert [each.operator.number for each in rescaled.rescaled] == [0, 1]
        assert [operator.number for operator in rescaled.single] == [2]
        assert rescaled.moves_rows

    def test_its_size_is_that_of_the_present_partitions(self) -> None:
        assert [plan().bytes_of(each) for each in plan().rescaled] == [200, 100]

    def test_a_state_in_an_object_store_has_its_size_there_and_notes_of_new_partitions(
        self,
    ) -> None:
        note = "state/0/1/_cowstate-store"
        place = StatePlace("s3://bucket", "q")
        stored = {"state/0/0/a": 10, "state/0/1/b": 20, "state/1/0/left/c": 30, "state/2/0/d": 40}
        moved = plan(3, place=place, stored=stored, files=(CheckpointFile(note, 5, 1),))
        assert [moved.bytes_of(each) for each in moved.rescaled] == [35, 30]
        assert moved.new_notes == (
            "state/0/0/_cowstate-store",
            "state/0/2/_cowstate-store",
            *(f"state/1/{number}/_cowstate-store" for number in range(3)),
        )
        assert plan().new_notes == ()

    def test_before_the_first_commit_there_are_no_rows_and_partitions_may_be_missing(self) -> None:
        first = {"planned": 0, "committed": None, "commit": None, "offsets": {0: planned(0)}}
        begun = plan(operators=(operator_with(partitions=1),), **first)
        assert [each.operator.number for each in begun.rescaled] == [0]
        assert not begun.moves_rows
        assert edited_paths(begun)[-1] == "offsets/0"

    @pytest.mark.parametrize("strict", ["false", None])
    def test_one_partition_does_not_tell_how_a_query_without_strict_distribution_was_dealt_out(
        self, strict: str | None
    ) -> None:
        settings = {PARTITIONS: "1"} if strict is None else {PARTITIONS: "1", STRICT: strict}
        operators = (operator_with(partitions=1),)
        message = f"does not set {STRICT} = true.*Start the query with a new checkpoint"
        with pytest.raises(UnsupportedOperationError, match=message):
            plan(offsets={2: planned(2, **settings)}, operators=operators)
        settings[STRICT] = "true"
        assert plan(offsets={2: planned(2, **settings)}, operators=operators).target == 6

    @pytest.mark.parametrize(
        ("changes", "target", "error", "message"),
        [
            ({}, 0, ConfigurationError, "--partitions is 0; it must be a whole number from 1"),
            ({}, 2, ConfigurationError, "file:/q has 2 partitions already"),
            (
                {"offsets": {2: planned(2, **{PROVIDER_KEY: HDFS_CLASS})}},
                6,
                UnsupportedOperationError,
                "is on HDFSBackedStateStoreProvider.*cowstate adopt file:/q --apply",
            ),
            (
                {"offsets": {2: planned(2, **{ENCODING: "avro"})}},
                6,
                UnsupportedOperationError,
                "encodingFormat = avro, but cowstate reads only unsaferow",
            ),
            (
                {"offsets": {2: OLD_ENTRY}},
                6,
                UnsupportedOperationError,
                f"not set {PARTITIONS}. Run",
            ),
            (
                {"operators": (operator_with(partitions=1),)},
                6,
                UnsupportedOperationError,
                "state/0 has 1 of the 2 partitions of stateStoreSave. Restore the missing ones",
            ),
        ],
    )
    def test_what_is_refused(
        self, changes: Any, target: int, error: type[Exception], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            plan(target, **changes)


class TestEdits:
    def test_the_newest_entry_of_the_offset_log_takes_effect_and_nothing_else_of_it_changes(
        self,
    ) -> None:
        *_, switch = edits = edits_of(plan(), {})
        assert [edit.path for edit in edits] == edited_paths(plan())
        former = planned(2).text
        assert (switch.path, switch.between) == ("offsets/2", former)
        assert switch.after == former.replace(f'"{PARTITIONS}":"2"', f'"{PARTITIONS}":"6"')
        assert switch.after != former

    def test_operators_note_the_new_number_also_those_with_one_partition(self) -> None:
        *edits, _ = edits_of(plan(), {})
        assert [edit.path for edit in edits] == [
            f"state/{number}/_metadata/metadata" for number in range(3)
        ]
        for edit, operator in zip(edits, OPERATORS, strict=True):
            assert edit.between == operator.noted.text
            infos = content(edit.after)["stateStoreInfo"]
            assert {info["numPartitions"] for info in infos} == {6}

    def test_between_two_numbers_the_entry_before_an_open_batch_has_none(self) -> None:
        opened = plan(planned=3, offsets={number: planned(number) for number in (2, 3)})
        before, *_, switch = edits_of(opened, {})
        assert (before.path, switch.path) == ("offsets/2", "offsets/3")
        numbers = [content(text)["conf"].get(PARTITIONS) for text in (before.between, before.after)]
        assert numbers == [None, "6"]

    @pytest.mark.parametrize("target", [1, 3])
    def test_the_commit_log_has_ids_of_both_numbers_until_the_new_one_counts(
        self, target: int
    ) -> None:
        former = {
            "0": [["a0"], ["a1"]],
            "1": [["l0", "r0"], ["l1", "r1"]],
            "2": [["limit"]],
        }
        commit = log_entry("commits/2", {"nextBatchWatermarkMs": 7, "stateUniqueIds": former})
        new = {
            (number, store, partition): f"{number}-{store}-{partition}"
            for number, stores in ((0, ("default",)), (1, SIDES))
            for store in stores
            for partition in range(target)
        }
        edit, *_ = edits_of(plan(target, commit=commit), new)
        assert edit.path == "commits/2"
        between, after = (content(t)["stateUniqueIds"] for t in (edit.between, edit.after))
        assert after == {
            "0": [[f"0-default-{n}"] for n in range(target)],
            "1": [[f"1-left-{n}", f"1-right-{n}"] for n in range(target)],
            "2": [["limit"]],
        }
        assert between["0"] == [*former["0"], *after["0"][2:]]
        assert between["1"] == [*former["1"], *after["1"][2:]]
