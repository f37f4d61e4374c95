"""A script of epochs that stops before, during or after any write leaves a whole checkpoint.

A later reader of the store finds the checkpoint of a whole epoch: the old epoch or the
new epoch, never a mixture. Every named file exists. A script that starts again from the found
checkpoint ends in the same state.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from checkpoint_store.epochs.completed_checkpoint import CompletedCheckpoint
from checkpoint_store.epochs.published_objects import PublishedObjects
from checkpoint_store.errors import CheckpointStoreError, PartialEpochError
from checkpoint_store.files.state_handle import StateFileKind
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.runs.run_errors import RunOverError
from tests.support.operators.counts_operator import (
    MAX_PARALLELISM,
    CountsOperator,
    check_nothing_named_is_missing,
    restored,
    state_before,
    whole_range,
)
from tests.support.stores.fake_object_store import (
    STOP_MODES,
    DictObjectStore,
    StopMode,
    Stopped,
    StoppingObjectStore,
)

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures("without_threads")]

EPOCHS = 6
MIN_EPOCHS = 2
# The state after each epoch: every epoch changes every key group, so a mixture shows.
STATES = {epoch: dict.fromkeys(range(MAX_PARALLELISM), epoch) for epoch in range(EPOCHS)}


def run_script(store: StoppingObjectStore | DictObjectStore, run_id: str, first: int) -> None:
    """Open and register, then run, complete and clean up after each epoch."""
    operator = CountsOperator(store, run_id)
    for epoch in range(first, EPOCHS):
        kind: StateFileKind = "snapshot" if epoch % 3 == 2 else "changelog"
        assert operator.run_epoch(epoch, STATES[epoch], kind) is not None
        operator.checkpoints.retain(MIN_EPOCHS)


def writes_of_script() -> int:
    store = StoppingObjectStore(DictObjectStore(), stop_at=0, mode="before the write")
    run_script(store, "run-a", 0)
    return store.writes


WRITES = writes_of_script()


def published_whole(objects: DictObjectStore) -> int:
    """The newest epoch with barriers of both subtasks, from a listing alone; -1 if none."""
    published = PublishedObjects(objects)
    whole = [
        directory.epoch
        for directory in published.epoch_directories()
        if {name.subtask for name in published.barriers(directory)} == {0, 1}
    ]
    return max(whole, default=-1)


def test_the_script_has_many_writes() -> None:
    assert WRITES > 40


@pytest.mark.parametrize("mode", STOP_MODES)
@pytest.mark.parametrize("stop_at", range(1, WRITES + 1))
def test_a_stop_leaves_the_old_or_the_new_checkpoint(stop_at: int, mode: StopMode) -> None:
    objects = DictObjectStore()
    with pytest.raises(Stopped):
        run_script(StoppingObjectStore(objects, stop_at, mode), "run-a", 0)
    check_nothing_named_is_missing(objects)
    newest = published_whole(objects)
    # Spark runs the unfinished epoch again, from the state of the epoch before.
    assert state_before(objects, newest + 1) == STATES.get(newest, {})
    if newest > 0:
        assert state_before(objects, newest) == STATES[newest - 1]
    run_script(objects, "run-b", newest + 1)
    assert state_before(objects, EPOCHS, parallelism=3) == STATES[EPOCHS - 1]
    check_nothing_named_is_missing(objects)


SECOND = {epoch: dict.fromkeys(range(MAX_PARALLELISM), 100 + epoch) for epoch in range(EPOCHS)}


def run_beside(store: StoppingObjectStore | DictObjectStore, epoch: int) -> None:
    """Run an epoch with other changes as another driver of the query. Spark's commit log refuses
    this driver, so the driver never goes on."""
    CountsOperator(store, "run-z").run_epoch(epoch, SECOND[epoch])


def writes_of_second_driver() -> int:
    objects = DictObjectStore()
    CountsOperator(objects).run_epoch(0, STATES[0])
    store = StoppingObjectStore(objects, stop_at=0, mode="before the write")
    run_beside(store, 1)
    return store.writes


@pytest.mark.parametrize("mode", STOP_MODES)
@pytest.mark.parametrize("first_has_run_it", [False, True])
@pytest.mark.parametrize("stop_at", range(writes_of_second_driver() + 1))
def test_a_second_driver_that_stops_anywhere_changes_no_committed_epoch(
    stop_at: int, mode: StopMode, first_has_run_it: bool
) -> None:
    """The second driver runs the same epoch before or after the first driver; 0: no stop. Spark
    commits the epoch of the first driver, and asks the first driver for the next epoch."""
    objects = DictObjectStore()
    first = CountsOperator(objects)
    first.run_epoch(0, STATES[0])
    base = first.checkpoints.latest_before(1)

    def run_first(epoch: int, base: CompletedCheckpoint | None) -> None:
        for subtask in range(first.parallelism):
            first.run_subtask(epoch, subtask, STATES[epoch], base)
        assert first.checkpoints.complete(epoch, first.run, first.parallelism)

    if first_has_run_it:
        run_first(1, base)
    with suppress(Stopped):
        run_beside(StoppingObjectStore(objects, stop_at, mode), 1)
    if not first_has_run_it:
        run_first(1, base)
    committed = 1
    try:
        share = first.checkpoints.bases.completed_at(1, first.run, first.parallelism)
        assert share is not None
        run_first(2, first.checkpoints.bases.whole(share))
        committed = 2
    except RunOverError:
        first.checkpoints.starts.note_reached("run-a", 2)
    again = CountsOperator(objects, "run-b")
    base = again.checkpoints.latest_before(committed + 1, again.run)
    assert restored(again.checkpoints, base, whole_range(1)) == STATES[committed]
    assert state_before(objects, committed + 1) == STATES[committed]


@pytest.mark.parametrize("mode", STOP_MODES)
def test_a_query_that_went_on_without_a_stopped_epoch_is_told(mode: StopMode) -> None:
    """If Spark committed an epoch that is not durable in every subtask, a restore is refused."""
    outcomes = set()
    for stop_at in range(1, WRITES + 1):
        objects = DictObjectStore()
        with pytest.raises(Stopped):
            run_script(StoppingObjectStore(objects, stop_at, mode), "run-a", 0)
        newest = published_whole(objects)
        started = {
            name.subtask
            for directory in PublishedObjects(objects).epoch_directories()
            if directory.epoch == newest + 1
            for name in PublishedObjects(objects).barriers(directory)
        }
        if started:
            with pytest.raises(PartialEpochError, match=f"epoch {newest + 1} is incomplete"):
                state_before(objects, newest + 2)
        else:
            assert state_before(objects, newest + 2) == STATES.get(newest, {})
        outcomes.add(frozenset(started))
    assert outcomes == {frozenset(), frozenset({0})}


@pytest.mark.parametrize("mode", STOP_MODES)
def test_every_retained_epoch_restores_after_a_stop_in_retention(mode: StopMode) -> None:
    prepared = DictObjectStore()
    operator = CountsOperator(prepared)
    for epoch in range(EPOCHS):
        operator.run_epoch(epoch, STATES[epoch], "snapshot" if epoch % 3 == 2 else "changelog")
    counting = StoppingObjectStore(prepared.copy(), stop_at=0, mode=mode)
    CompletedCheckpointStore(counting).retain(MIN_EPOCHS)
    assert counting.writes > 10
    for stop_at in range(1, counting.writes + 1):
        objects = prepared.copy()
        with pytest.raises(Stopped):
            CompletedCheckpointStore(StoppingObjectStore(objects, stop_at, mode)).retain(MIN_EPOCHS)
        check_nothing_named_is_missing(objects)
        for epoch in range(EPOCHS - MIN_EPOCHS, EPOCHS):
            assert state_before(objects, epoch + 1) == STATES[epoch]
        # The next retention and the next sweep delete the rest.
        CompletedCheckpointStore(objects).retain(MIN_EPOCHS)
        CompletedCheckpointStore(objects).sweep_orphans(grace_seconds=0.0, now=1.0)
        assert set(objects.objects) == set(counting.store.objects)


def test_an_epoch_behind_a_stopped_retention_is_an_error_or_whole() -> None:
    """A restore finds a half-deleted old checkpoint whole or not at all: never a part of its
    state."""
    prepared = DictObjectStore()
    operator = CountsOperator(prepared)
    for epoch in range(EPOCHS):
        operator.run_epoch(epoch, STATES[epoch], "snapshot")
    for stop_at in range(1, 40):
        objects = prepared.copy()
        stopping = StoppingObjectStore(objects, stop_at, "after the write")
        with suppress(Stopped):
            CompletedCheckpointStore(stopping).retain(MIN_EPOCHS)
        for epoch in range(1, EPOCHS - MIN_EPOCHS):
            try:
                checkpoints = CompletedCheckpointStore(objects)
                checkpoint = checkpoints.latest_before(epoch)
                state = restored(checkpoints, checkpoint, whole_range(1))
            except CheckpointStoreError:
                continue
            assert state == STATES[epoch - 1]
