"""A query is never built on a wrong epoch after `cowstate attach` stopped at any write.

The script has two operators whose runs contradict each other. Repeating the same command finishes
the attach. Whatever a stopped command left behind, a run of the query either continues from the
chosen epoch or is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from checkpoint_store.epochs.completed_checkpoint import CompletedCheckpoint, Run
from checkpoint_store.errors import CheckpointStoreError
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.operators.attachment import attach_all, stored_runs
from checkpoint_store.runs.attachment_plan import attachments_of
from checkpoint_store.runs.checkpoint_location import digest_of
from checkpoint_store.runs.run_errors import (
    RunChoiceError,
    RunOverError,
    StoreOfOtherCheckpointError,
)
from tests.support.operators.counts_operator import (
    MAX_PARALLELISM,
    CountsOperator,
    restored,
    whole_range,
)
from tests.support.operators.taken_back import CHECKPOINT
from tests.support.stores.fake_object_store import (
    STOP_MODES,
    DictObjectStore,
    RefusingObjectStore,
    StopMode,
    Stopped,
    StoppingObjectStore,
)

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures("without_threads")]

MOVED = "file:/moved"
COMMITTED = 3
WRITES = 3  # two marks of the run, and the start of the run
State = dict[int, int]


def state(value: int) -> State:
    """Build a state with a change in every key group, so a mixture of epochs shows."""
    return dict.fromkeys(range(MAX_PARALLELISM), value)


def run_epochs(
    operator: CountsOperator, epochs: range, values: int, base: CompletedCheckpoint | None
) -> list[CompletedCheckpoint]:
    """Run epochs, each based on the epoch before, even if another run has written the same
    epochs."""
    completed = []
    for epoch in epochs:
        for subtask in range(operator.parallelism):
            operator.run_subtask(epoch, subtask, state(values + epoch), base)
        operator.checkpoints.complete(epoch, operator.run, operator.parallelism)
        share = operator.checkpoints.bases.completed_at(epoch, operator.run, operator.parallelism)
        assert share is not None
        base = operator.checkpoints.bases.whole(share)
        completed.append(base)
    return completed


def written_by_two_runs() -> tuple[DictObjectStore, list[Run]]:
    """Build a store with epochs 0 to 4 of run 1, and different results of epochs 2 to 4 of run
    2."""
    store = DictObjectStore()
    first = CountsOperator(store, "run-a")
    first.checkpoints.starts.note_checkpoint(first.run, CHECKPOINT)
    shared = run_epochs(first, range(5), 100, None)[1]
    second = CountsOperator(store, "run-b")
    second.checkpoints.starts.note_checkpoint(second.run, CHECKPOINT)
    run_epochs(second, range(2, 5), 200, shared)
    return store, [first.run, second.run]


WRITTEN, OLDER = written_by_two_runs()


def attach(stores: Sequence[ObjectStore], run: str | None = "run-b", attempt: str = "1") -> None:
    planned = attachments_of(
        [stored_runs(each) for each in stores], digest_of(MOVED), 3, run, is_under_way=True
    )
    attach_all(stores, planned, f"attached-{attempt}", MOVED)


def state_at_start(store: DictObjectStore, checkpoint: str = MOVED) -> State:
    """Read the state at the start of a new run, after the last committed batch."""
    operator = CountsOperator(store.copy(), "run-next")
    starts = operator.checkpoints.starts
    starts.check_checkpoint(checkpoint)
    starts.note_checkpoint(operator.run, checkpoint)
    base = operator.checkpoints.latest_before(COMMITTED + 1, operator.run)
    return restored(operator.checkpoints, base, whole_range(operator.parallelism))


def check_attached(store: DictObjectStore) -> None:
    assert state_at_start(store) == state(203)
    with pytest.raises(StoreOfOtherCheckpointError):
        state_at_start(store, CHECKPOINT)
    for run in OLDER:
        with pytest.raises(RunOverError):
            CountsOperator(store.copy()).checkpoints.starts.check_newest(run)


@pytest.mark.parametrize("mode", STOP_MODES)
@pytest.mark.parametrize("stop_at", range(1, WRITES + 1))
@pytest.mark.parametrize("operator", range(2))
def test_the_command_again_finishes(operator: int, stop_at: int, mode: StopMode) -> None:
    stores = [WRITTEN.copy(), WRITTEN.copy()]
    stopping: list[ObjectStore] = [*stores]
    stopping[operator] = StoppingObjectStore(stores[operator], stop_at, mode)
    with pytest.raises(Stopped):
        attach(stopping)
    for store in stores:
        try:
            assert state_at_start(store) == state(203)
        except CheckpointStoreError:
            continue
    attach(stores, attempt="2")
    for store in stores:
        check_attached(store)
    names = [[*store.objects] for store in stores]
    attach(stores, attempt="3")
    attach(stores, run=None, attempt="3")
    assert [[*store.objects] for store in stores] == names


def test_a_store_that_fails_says_that_the_command_goes_on() -> None:
    first, second = WRITTEN.copy(), WRITTEN.copy()
    failure = CheckpointStoreError("the network is down")
    failing = RefusingObjectStore(second, lambda call, _: failure if call == "put" else None)
    with pytest.raises(CheckpointStoreError) as failed:
        attach([first, failing])
    assert failed.value.__notes__ == [
        "1 of 2 operators are attached. Run the command again: it goes on with the rest"
    ]
    attach([first, second], attempt="2")
    check_attached(second)


def test_all_operators_are_checked_before_anything_is_written() -> None:
    first, second = WRITTEN.copy(), WRITTEN.copy()
    attach([first])
    names = [*first.objects], [*second.objects]
    with pytest.raises(RunChoiceError):
        attach([first, second], run=None)
    with pytest.raises(RunChoiceError):
        attach([second, first], run="run-c")
    assert ([*first.objects], [*second.objects]) == names


def test_a_query_goes_on_after_the_chosen_epoch_and_an_older_run_does_not_count() -> None:
    store = WRITTEN.copy()
    attach([store])
    operator = CountsOperator(store, "run-next")
    base = operator.checkpoints.latest_before(COMMITTED + 1, operator.run)
    run_epochs(operator, range(4, 6), 300, base)
    late = CountsOperator(store, "run-a")
    run_epochs_late(late, range(5, 8))
    again = CountsOperator(store.copy(), "run-last")
    last = again.checkpoints.latest_before(6, again.run)
    assert restored(again.checkpoints, last, whole_range(2)) == state(305)


def run_epochs_late(operator: CountsOperator, epochs: range) -> None:
    """Let an ended run publish barriers without looking at the store."""
    for epoch in epochs:
        for subtask in range(operator.parallelism):
            operator.run_subtask(epoch, subtask, state(epoch), None)
        operator.checkpoints.complete(epoch, operator.run, operator.parallelism)
