"""An epoch of few or many subtasks that stops at any write leaves a whole checkpoint.

Each subtask has its own host. With many subtasks, groups of barriers complete the checkpoint. A
reader finds either the epoch before or this epoch, whole, and can continue from the found epoch. A
share of the checkpoint agrees with the whole checkpoint.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import count, islice

import pytest

from checkpoint_store.epochs.operator_layout import EpochDirectory
from checkpoint_store.epochs.published_objects import PublishedObjects
from checkpoint_store.epochs.subtask_groups import SubtaskGroups
from tests.support.operators.counts_operator import check_nothing_named_is_missing
from tests.support.operators.lone_subtasks import (
    LoneSubtask,
    Operator,
    run_epoch,
    started,
    state_before,
)
from tests.support.stores.fake_object_store import (
    DictObjectStore,
    StopMode,
    Stopped,
    StoppingObjectStore,
)

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures("without_threads")]

TENS = SubtaskGroups(digits=1)
# Group names have five digits, so ten subtasks are the least group; 25 subtasks are 3 groups.
OPERATORS = {
    parallelism: Operator("run-a", parallelism, groups=TENS) for parallelism in (1, 2, 7, 25)
}
MODES: tuple[StopMode, ...] = ("before the write", "after the write")
KEY_GROUPS = 128
# The state after each epoch. Every eighth key group changes, so that most subtasks write nothing.
CHANGES = [dict.fromkeys(range(0, KEY_GROUPS, 8), epoch) for epoch in range(4)]


@cache
def prepared(parallelism: int) -> DictObjectStore:
    """Build a store with epochs 0 and 1."""
    objects = DictObjectStore()
    subtasks = started(objects, OPERATORS[parallelism])
    for epoch in range(2):
        run_epoch(subtasks, epoch, CHANGES[epoch])
    return objects


def in_any_order(subtasks: Sequence[LoneSubtask], seed: int) -> list[LoneSubtask]:
    return random.Random(seed).sample(subtasks, len(subtasks))


def run_script(store: StoppingObjectStore, operator: Operator, seed: int) -> None:
    """Run epoch 2 in a new run, and then retention."""
    subtasks = started(store, replace(operator, run_id="run-b"))
    for subtask in in_any_order(subtasks, seed):
        subtask.run_epoch(2, CHANGES[2])
    subtasks[0].checkpoints.retain(2)


def is_whole(objects: DictObjectStore, operator: Operator) -> bool:
    """Return True if all barriers of epoch 2 are in a listing."""
    names = PublishedObjects(objects).barriers(EpochDirectory(2, 2))
    return {name.subtask for name in names} == set(range(operator.parallelism))


def stopped(operator: Operator, mode: StopMode) -> Iterator[tuple[int, DictObjectStore]]:
    """Stop the script at its first write, at its second write, and so on; yield the objects
    left."""
    for stop_at in count(1):
        objects = prepared(operator.parallelism).copy()
        try:
            run_script(StoppingObjectStore(objects, stop_at, mode), operator, stop_at)
        except Stopped:
            yield stop_at, objects
        else:
            break
    assert stop_at > operator.parallelism + 7


# A stop before a write equals a stop after the previous write, except at the first write: a few
# subtasks suffice.
@pytest.mark.parametrize(
    ("parallelism", "mode"),
    [(parallelism, mode) for parallelism in OPERATORS for mode in MODES if parallelism < 25]
    + [(25, "after the write")],
)
def test_a_stop_at_any_write_leaves_the_old_or_the_new_epoch(
    parallelism: int, mode: StopMode
) -> None:
    operator = OPERATORS[parallelism]
    for stop_at, objects in stopped(operator, mode):
        check_nothing_named_is_missing(objects)
        newest = 2 if is_whole(objects, operator) else 1
        # Spark runs the unfinished epoch again, with the same number of subtasks or another number.
        for other in (operator, replace(operator, parallelism=3)):
            restarted = replace(other, run_id="run-c")
            assert state_before(objects.copy(), newest + 1, restarted) == CHANGES[newest]
        again = replace(operator, run_id="run-d")
        run_epoch(in_any_order(started(objects, again), -stop_at), newest + 1, CHANGES[newest + 1])
        assert state_before(objects, newest + 2, again) == CHANGES[newest + 1]
        check_nothing_named_is_missing(objects)


@pytest.mark.parametrize("parallelism", OPERATORS)
def test_what_a_stop_leaves_over_is_deleted(parallelism: int) -> None:
    operator = OPERATORS[parallelism]
    for _, objects in islice(stopped(operator, "after the write"), 0, None, 5):
        subtasks = started(objects, replace(operator, run_id="run-e"))
        first = 3 if is_whole(objects, operator) else 2
        for epoch in range(first, first + 3):
            run_epoch(subtasks, epoch, {})
        checkpoints = operator.opened(objects)
        checkpoints.retain(2)
        checkpoints.sweep_orphans(grace_seconds=0.0, now=1.0)
        published = PublishedObjects(objects)
        assert sorted(name.epoch for name in published.manifests()) == [first + 1, first + 2]
        needed = {
            object_name
            for name in published.manifests()
            for object_name in published.read_manifest(name).object_names()
        }
        there = {n for n in objects.objects if n.startswith("epochs/") and "/barrier-" not in n}
        assert there == needed
