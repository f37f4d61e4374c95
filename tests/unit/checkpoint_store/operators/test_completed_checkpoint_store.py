"""After any script of epochs, runs and accidents, the store finds the right checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pytest

from checkpoint_store.epochs import checkpoint_completion
from checkpoint_store.epochs.checkpoint_codec import encode_metadata
from checkpoint_store.epochs.checkpoint_share import share_of_all
from checkpoint_store.epochs.completed_checkpoint import CompletedBarriers, Run
from checkpoint_store.errors import (
    CorruptObjectError,
    EpochNotRetainedError,
    PartialEpochError,
    StoreMismatchError,
    UnsupportedFormatError,
)
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.runs.run_errors import RunOverError
from tests.support.operators.counts_operator import (
    METADATA,
    CountsOperator,
    restored,
    state_before,
    whole_range,
)
from tests.support.operators.taken_back import take_back
from tests.support.stores.fake_object_store import DictObjectStore
from tests.support.stores.sealed_documents import of_version


def published(objects: DictObjectStore, part: str) -> list[str]:
    return sorted(name for name in objects.objects if part in name)


def where(checkpoint: CompletedBarriers | None) -> tuple[int, str] | None:
    """Return the epoch and the run id of a checkpoint."""
    return None if checkpoint is None else (checkpoint.epoch, checkpoint.run.run_id)


def start_of(objects: DictObjectStore, epoch: int) -> tuple[int, str] | None:
    """Return the epoch and the run id from which a new process starts `epoch`."""
    return where(CompletedCheckpointStore(objects).latest_before(epoch))


def test_one_opening_makes_the_store_later_ones_read_it(objects: DictObjectStore) -> None:
    assert CompletedCheckpointStore(objects).open(METADATA) == METADATA
    written = dict(objects.objects)
    assert CompletedCheckpointStore(objects).open(METADATA) == METADATA
    assert objects.objects == written == {"store.json": encode_metadata(METADATA)}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("operator", "sums"),
        ("max_parallelism", 16),
        ("key_schema_json", '{"type":"long"}'),
        ("store_id", "store-2"),
    ],
)
def test_a_store_of_something_else_is_refused_with_both_values(
    objects: DictObjectStore, field: str, value: object
) -> None:
    CompletedCheckpointStore(objects).open(METADATA)
    other = replace(METADATA, **{field: value})  # type: ignore[arg-type]
    with pytest.raises(StoreMismatchError) as caught:
        CompletedCheckpointStore(objects).open(other)
    stored = str(getattr(METADATA, field))
    assert (caught.value.field, caught.value.stored) == (field, stored)
    assert caught.value.expected == str(value)


def test_a_store_of_a_newer_format_is_refused(objects: DictObjectStore) -> None:
    objects.put("store.json", of_version(2, encode_metadata(METADATA)))
    with pytest.raises(UnsupportedFormatError, match=r"store\.json .* version 2"):
        CompletedCheckpointStore(objects).open(METADATA)


def test_a_run_is_later_than_writers_without_entries(objects: DictObjectStore) -> None:
    for run_id in ("c", "a"):
        CountsOperator(objects, run_id).run_epoch(0, {0: 1})
    CountsOperator(objects, "b").run_subtask(1, 0, {0: 1}, None)
    objects.delete(published(objects, "runs/"))
    assert CompletedCheckpointStore(objects).runs.register("d") == Run(4, "d")
    objects.delete([*published(objects, "runs/"), *published(objects, "epochs/")])
    assert CompletedCheckpointStore(objects).runs.register("e") == Run(3, "e")


def test_the_last_barrier_completes_the_epoch_and_none_is_read_before(
    objects: DictObjectStore,
) -> None:
    operator = CountsOperator(objects, parallelism=3)
    other_host = CompletedCheckpointStore(objects)
    for subtask in range(2):
        operator.run_subtask(0, subtask, {0: 1}, None)
        objects.reads.clear()
        for checkpoints in (operator.checkpoints, other_host):
            assert not checkpoints.complete(0, operator.run, 3)
        assert (objects.reads, published(objects, "manifests/")) == ([], [])
    last = operator.run_subtask(0, 2, {}, None)
    assert other_host.complete(0, operator.run, 3)
    assert len(objects.reads) == 3
    assert operator.checkpoints.latest_before(1).barriers[2] == last
    assert len(published(objects, "manifests/")) == 1
    assert start_of(objects, 1) == (0, "run-a")


def test_the_latest_attempts_make_the_winning_manifest(
    objects: DictObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = CountsOperator(objects)
    # Names drawn later sort first, so only the attempt can decide.
    uniques = (f"{number:012x}" for number in range(99, 0, -1))
    monkeypatch.setattr(checkpoint_completion, "unique_of_uuid", lambda: next(uniques))
    operator.run_epoch(0, {0: 1, 7: 1}, attempt=1)
    # The epoch runs again; meanwhile a manifest of old and new barriers is written.
    operator.run_subtask(0, 1, {7: 2}, None, attempt=4)
    operator.checkpoints.complete(0, operator.run, 2)
    operator.run_subtask(0, 0, {0: 2}, None, attempt=3)
    operator.checkpoints.complete(0, operator.run, 2)
    assert state_before(objects, 1) == {0: 2, 7: 2}
    completed = operator.checkpoints.bases.completed_at(0, operator.run, 2)
    assert restored(operator.checkpoints, completed, whole_range(2)) == {0: 2, 7: 2}


def test_a_barrier_has_files_of_its_own_key_groups_only(objects: DictObjectStore) -> None:
    operator = CountsOperator(objects)
    barrier = operator.run_subtask(0, 0, {0: 1}, None)
    with pytest.raises(AssertionError):
        operator.checkpoints.publish_barrier(replace(barrier, subtask=1))


def test_what_this_process_wrote_is_not_read_again(objects: DictObjectStore) -> None:
    operator = CountsOperator(objects)
    objects.reads.clear()
    operator.run_epoch(0, {0: 1})
    operator.checkpoints.bases.completed_at(0, operator.run, 2)
    operator.checkpoints.latest_before(1)
    operator.checkpoints.retain(2)
    assert objects.reads == []


def test_an_epoch_with_files_but_no_barrier_was_not_run(objects: DictObjectStore) -> None:
    operator = CountsOperator(objects)
    operator.run_epoch(0, {0: 1})
    barrier = operator.run_subtask(1, 0, {0: 2}, None)
    objects.delete(published(objects, "barrier-00000-of-00002")[-1:])
    assert published(objects, barrier.handles[0].name) != []
    assert start_of(objects, 2) == (0, "run-a")


def test_a_partial_epoch_is_never_built_upon(objects: DictObjectStore) -> None:
    operator = CountsOperator(objects, parallelism=4)
    operator.run_epoch(0, {0: 1})
    base = operator.checkpoints.latest_before(1)
    for subtask in (0, 2):
        operator.run_subtask(1, subtask, {0: 2}, base)
    with pytest.raises(PartialEpochError) as caught:
        start_of(objects, 2)
    error = caught.value
    assert (error.epoch, error.present, error.missing) == (1, (0, 2), (1, 3))
    assert operator.checkpoints.completion.missing_subtasks(1, operator.run, 4) == (1, 3)
    # The epoch itself can run again.
    assert start_of(objects, 1) == (0, "run-a")
    operator.run_epoch(1, {0: 3}, attempt=2)
    assert operator.checkpoints.completion.missing_subtasks(1, operator.run, 4) == ()
    assert state_before(objects, 2) == {0: 3}


def test_a_zombie_that_publishes_late_is_not_picked_up(objects: DictObjectStore) -> None:
    zombie = CountsOperator(objects, "run-z")
    zombie.run_epoch(0, {0: 1})
    operator = CountsOperator(objects, "run-b")
    operator.run_epoch(1, {0: 2})
    # Tasks of the older run are still alive and write all barriers of the same epoch.
    base = zombie.checkpoints.latest_before(1)
    for subtask in range(2):
        zombie.run_subtask(1, subtask, {0: 666}, base, attempt=99)
    zombie.checkpoints.complete(1, zombie.run, 2)
    operator.checkpoints.starts.note_reached("run-b", 2)
    operator.run_epoch(3, {1: 3})
    assert state_before(objects, 4) == {0: 2, 1: 3}


def test_a_rollback_without_its_manifest_is_followed(objects: DictObjectStore) -> None:
    first = CountsOperator(objects, "run-a")
    for epoch in range(10):
        first.run_epoch(epoch, {0: epoch})
    take_back(objects, 4)
    second = CountsOperator(objects, "run-b")
    base = second.checkpoints.latest_before(4)
    for subtask in range(2):
        second.run_subtask(4, subtask, {1: 4}, base)
    assert start_of(objects, 9) == (4, "run-b")


@pytest.mark.parametrize("length", [0, 100])
def test_cuts_never_lead_to_older_epochs(objects: DictObjectStore, length: int) -> None:
    operator = CountsOperator(objects)
    operator.run_epoch(0, {0: 1})
    operator.run_epoch(1, {0: 2})
    manifest = published(objects, "manifests/")[-1]
    objects.objects[manifest] = objects.objects[manifest][:length]
    assert state_before(objects, 2) == {0: 2}
    for barrier in published(objects, "epochs/0000000000000000001-0000000001/barrier-"):
        objects.objects[barrier] = objects.objects[barrier][:length]
        with pytest.raises(CorruptObjectError, match="barrier-"):
            start_of(objects, 2)


def test_the_only_barrier_of_an_epoch_is_needed_whole(objects: DictObjectStore) -> None:
    operator = CountsOperator(objects, parallelism=1)
    operator.run_epoch(0, {0: 1})
    operator.run_subtask(1, 0, {0: 2}, operator.checkpoints.latest_before(1))
    barrier = published(objects, "barrier-")[-1]
    objects.objects[barrier] = objects.objects[barrier][:-1]
    for find in (
        lambda: start_of(objects, 2),
        lambda: CompletedCheckpointStore(objects).bases.completed_at(1, operator.run, 1),
        lambda: CompletedCheckpointStore(objects).complete(1, operator.run, 1),
    ):
        with pytest.raises(CorruptObjectError) as caught:
            find()
        assert (caught.value.name, caught.value.epoch) == (barrier, 1)


def test_a_replaced_damaged_barrier_is_passed_over(objects: DictObjectStore) -> None:
    operator = CountsOperator(objects)
    for attempt in (1, 2):
        operator.run_subtask(0, 0, {0: attempt}, None, attempt=attempt)
    operator.run_subtask(0, 1, {7: 1}, None)
    first, second, _ = published(objects, "barrier-")
    whole = dict(objects.objects)
    objects.objects[first] = b""
    assert state_before(objects, 1) == {0: 2, 7: 1}
    objects.objects |= {first: whole[first], second: b""}
    with pytest.raises(CorruptObjectError) as caught:
        start_of(objects, 1)
    assert caught.value.name == second


def test_an_epoch_before_the_retained_ones_is_an_error(objects: DictObjectStore) -> None:
    operator = CountsOperator(objects)
    for epoch in range(5):
        operator.run_epoch(epoch, {0: epoch})
    operator.checkpoints.retain(2)
    assert start_of(objects, 4) == (3, "run-a")
    with pytest.raises(EpochNotRetainedError) as caught:
        start_of(objects, 3)
    assert (caught.value.epoch, caught.value.oldest) == (3, 3)
    assert start_of(objects, 0) is None


def test_the_very_first_epoch_may_run_again(objects: DictObjectStore) -> None:
    operator = CountsOperator(objects)
    operator.run_epoch(3, {0: 1})
    operator.run_epoch(4, {0: 2})
    assert start_of(objects, 3) is None


def test_an_epoch_s_manifest_is_found_by_one_listing(objects: DictObjectStore) -> None:
    operator = CountsOperator(objects)
    completed = operator.run_epoch(0, {0: 1})
    fresh = CompletedCheckpointStore(objects)
    objects.listings.clear()
    assert fresh.bases.completed_at(0, operator.run, 2) == share_of_all(completed)
    assert objects.listings == ["manifests"]


def test_what_another_run_completed_does_not_count(objects: DictObjectStore) -> None:
    CountsOperator(objects, "run-a").run_epoch(0, {0: 1})
    later = CountsOperator(objects, "run-b")
    assert later.checkpoints.bases.completed_at(0, later.run, 2) is None


def test_a_run_is_over_once_a_later_completes_an_epoch(objects: DictObjectStore) -> None:
    older, later = CountsOperator(objects, "run-a"), CountsOperator(objects, "run-b")
    completed = older.run_epoch(0, {0: 1})
    assert older.checkpoints.bases.completed_at(0, older.run, 2) == share_of_all(completed)
    assert older.checkpoints.latest_before(1, older.run) == completed
    later.run_epoch(1, {0: 2})
    for ask in (
        lambda: older.checkpoints.bases.completed_at(0, older.run, 2),
        lambda: older.checkpoints.latest_before(1, older.run),
        lambda: CompletedCheckpointStore(objects).latest_before(2, older.run),
    ):
        with pytest.raises(RunOverError) as caught:
            ask()
        assert (caught.value.run.run_id, caught.value.epoch) == ("run-a", 1)
    assert where(later.checkpoints.latest_before(1, later.run)) == (0, "run-a")
    assert where(later.checkpoints.bases.completed_at(1, later.run, 2)) == (1, "run-b")


def test_runs_that_share_a_number_are_told_apart(objects: DictObjectStore) -> None:
    first, second = CountsOperator(objects, "run-a"), CountsOperator(objects, "run-b")
    second.run = Run(first.run.number, "run-b")
    completed = first.run_epoch(0, {0: 1})
    for subtask in range(2):
        second.run_subtask(0, subtask, {0: 2}, None, attempt=9)
    assert second.checkpoints.complete(0, second.run, 2)
    fresh = CompletedCheckpointStore(objects)
    assert fresh.bases.completed_at(0, first.run, 2) == share_of_all(completed)
    assert where(fresh.bases.completed_at(0, second.run, 2)) == (0, "run-b")
