"""The reports of a change show the changed things before and after, as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from checkpoint_store.errors import UnsupportedFormatError
from checkpoint_store.files.document import Source
from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
from spark_state.spark.stopped_query.change_record import RESCALE, ChangeRecord
from spark_state.spark.stopped_query.change_report import (
    applied_as_json,
    applied_as_text,
    plan_as_json,
    plan_as_text,
    reverted_as_json,
    reverted_as_text,
)
from spark_state.spark.stopped_query.checkpoint_change import (
    AppliedChange,
    PlannedChange,
    RevertedChange,
    WrittenState,
)
from tests.support.provider.stopped_checkpoints import log_entry, stopped_checkpoint

CHECKPOINT = stopped_checkpoint(
    offsets={2: log_entry("offsets/2", {"conf": {PROVIDER_KEY: PROVIDER_CLASS}})}
)
PLANNED = PlannedChange(
    checkpoint=CHECKPOINT,
    changed={"Partitions": (2, 48), "Place": ("the checkpoint", "s3://b")},
    steps=("deal out the rows",),
    facts={"edits": ["offsets/2"]},
    start=("Start the query.",),
    found=("Time mode   None",),
)
RECORD = ChangeRecord(
    checkpoint="file:/q",
    planned=3,
    committed=2,
    changed=PLANNED.changed,
    own={"from": 2, "to": 48},
    edited={"offsets/2": "digest", "new": "digest"},
    removed=("old",),
    created=("new",),
    moved=("state",),
)
APPLIED = AppliedChange(
    PLANNED,
    "_cowstate_rescale/t",
    {**PLANNED.changed, "Next batch": (3, "3, without rows")},
    WrittenState(RECORD, {}, {"operator 0": 1200, "operator 1": 7}),
)
REVERTED = RevertedChange("file:/q", "_cowstate_rescale/t", RECORD, True, None)


def test_a_plan_shows_what_holds_now_and_after_apply_then_the_steps_and_the_advice() -> None:
    assert plan_as_text(RESCALE, PLANNED).split("\n") == [
        "Checkpoint  file:/q",
        "Query       q",
        "Provider    CowStateStoreProvider",
        "Progress    batch 2 is planned, batch 2 is committed; the next batch starts from version "
        "3",
        "Operator 0  stateStoreSave: 2 partitions of default; 0 files, 0 bytes",
        "Time mode   None",
        "",
        "            now             with --apply",
        "Partitions  2               48",
        "Place       the checkpoint  s3://b",
        "",
        "With --apply, rescale would",
        "  - deal out the rows",
        "",
        "Nothing was changed. Stop the query, then run this command with --apply. It plans batch 3 "
        "first, without rows, and edits this entry of offsets/, too: Spark refuses the batch to a "
        "query that still runs. --force, for a query that is certainly stopped, leaves this out.",
    ]
    report = plan_as_json(PLANNED)
    assert report["changed"]["Partitions"] == {"before": 2, "after": 48}
    assert (report["edits"], report["applied"]) == (["offsets/2"], False)


def test_a_batch_that_is_not_committed_needs_force() -> None:
    planned = replace(PLANNED, checkpoint=replace(CHECKPOINT, committed=1))
    assert plan_as_text(RESCALE, planned).split("\n")[-2:] == [
        "Batch 2 is planned and not committed, so the query may be running it: --apply would "
        "refuse, unless --force says that the query is stopped.",
        "Nothing was changed. Stop the query, then run this command with --apply --force.",
    ]


def test_an_applied_change_shows_what_held_before_and_what_holds_now() -> None:
    assert applied_as_text(RESCALE, APPLIED).split("\n") == [
        "Checkpoint  file:/q",
        "Query       q",
        "",
        "            before          now",
        "Partitions  2               48",
        "Place       the checkpoint  s3://b",
        "Next batch  3               3, without rows",
        "",
        "Rows        1,200 of operator 0, 7 of operator 1; read back and compared",
        "Backup      file:/q/_cowstate_rescale/t",
        "",
        "Start the query.",
        "Until the query has run, cowstate rescale --revert file:/q undoes this.",
    ]
    report = applied_as_json(APPLIED)
    assert report["changed"]["Next batch"] == {"before": 3, "after": "3, without rows"}
    assert (report["applied"], report["created"]) == (True, ["new"])
    assert report["rows"] == {"operator 0": 1200, "operator 1": 7}


def test_a_reverted_change_shows_the_way_back() -> None:
    assert reverted_as_text(RESCALE, REVERTED).split("\n") == [
        "Checkpoint  file:/q",
        "Undone      _cowstate_rescale/t",
        "",
        "            before  now",
        "Partitions  48      2",
        "Place       s3://b  the checkpoint",
        "",
        "Batch 3 stays planned. Before another change, start the query until the query has run "
        "this batch, or pass --force.",
    ]
    report = reverted_as_json(REVERTED)
    assert report["changed"]["Partitions"] == {"before": 48, "after": 2}
    assert (report["restored"], report["deleted"]) == (["offsets/2", "old", "state"], ["new"])


def test_a_change_that_was_killed_before_it_took_effect_says_so_and_what_may_be_left() -> None:
    killed = replace(REVERTED, had_effect=False, left="s3://b/d")
    told = reverted_as_text(RESCALE, killed)
    assert "Undone      _cowstate_rescale/t, which had not taken effect\n" in told
    assert "Partitions  2               2\n" in told
    assert "Files may be left in s3://b/d, because" in told
    forced = replace(REVERTED, record=replace(RECORD, planned=2))
    assert "stays planned" not in reverted_as_text(RESCALE, forced)
    assert "had changed nothing yet; the folder" in reverted_as_text(
        RESCALE, replace(killed, record=None)
    )


def test_a_record_is_read_back_as_it_was_written() -> None:
    read = ChangeRecord.of(json.loads(json.dumps(RECORD.content())), Source("file:/q", "record"))
    assert replace(read, changed=RECORD.changed) == RECORD
    assert {name: tuple(values) for name, values in read.changed.items()} == RECORD.changed


def test_a_record_of_a_later_release_is_refused_by_its_name() -> None:
    content = {**RECORD.content(), "format": 2}
    with pytest.raises(UnsupportedFormatError, match=r"t/rescale\.json in file:/q has format ver"):
        ChangeRecord.of(content, Source("file:/q", "t/rescale.json"))
