"""The orphan sweep deletes old unnamed files and nothing that may still be needed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.epochs.operator_layout import RunMark
from checkpoint_store.epochs.subtask_attempt import SubtaskAttempt
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from tests.support.operators.counts_operator import CountsOperator, state_before, state_table
from tests.support.stores.fake_object_store import DictObjectStore
from tests.unit.checkpoint_store.operators.test_checkpoint_retention import of_epoch

GRACE = 100.0
LONG_AFTER = 1_000.0


def write_orphan(operator: CountsOperator, epoch: int) -> StateHandle:
    """Write a file of a writer killed before its barrier."""
    by = SubtaskAttempt(operator.run, epoch, 0, 1)
    rows = state_table({0: 9})
    return operator.checkpoints.files.written_by(by).write("changelog", rows, KeyGroupRange(0, 3))


def test_what_nothing_names_is_deleted_after_the_grace_period(objects: DictObjectStore) -> None:
    operator = CountsOperator(objects)
    operator.run_epoch(0, {0: 1})
    orphan = write_orphan(operator, 0)
    assert CompletedCheckpointStore(objects).sweep_orphans(GRACE, now=GRACE) == []
    assert CompletedCheckpointStore(objects).sweep_orphans(GRACE, now=GRACE + 1) == [orphan.name]
    assert orphan.name not in objects.objects
    assert state_before(objects, 1) == {0: 1}
    assert CompletedCheckpointStore(objects).sweep_orphans(GRACE, LONG_AFTER) == []


def test_files_of_a_barrier_whose_epoch_is_not_complete_are_kept(objects: DictObjectStore) -> None:
    operator = CountsOperator(objects)
    operator.run_epoch(0, {0: 1})
    operator.run_subtask(1, 0, {0: 2}, operator.checkpoints.latest_before(1))
    orphan = write_orphan(operator, 1)
    assert CompletedCheckpointStore(objects).sweep_orphans(GRACE, LONG_AFTER) == [orphan.name]
    operator.run_subtask(1, 1, {7: 2}, operator.checkpoints.latest_before(1))
    assert state_before(objects, 2) == {0: 2, 7: 2}


def test_barriers_and_files_of_a_replaced_attempt_are_deleted(objects: DictObjectStore) -> None:
    operator = CountsOperator(objects)
    barriers = [operator.run_subtask(0, 0, {0: n}, None, attempt=n) for n in (1, 2)]
    operator.run_subtask(0, 1, {7: 1}, None)
    operator.checkpoints.complete(0, operator.run, 2)
    swept = CompletedCheckpointStore(objects).sweep_orphans(GRACE, LONG_AFTER)
    assert barriers[0].handles[0].name in swept
    assert len(swept) == 2
    assert state_before(objects, 1) == {0: 2, 7: 1}


def test_entries_of_runs_long_before_every_checkpoint_are_deleted(objects: DictObjectStore) -> None:
    entries = [str(RunMark(Run(n, f"run-{n}"), 1)) for n in range(1, 1005)]
    for name in entries:
        objects.put(name, b"")
    operator = CountsOperator(objects, "run-1003")
    operator.run_epoch(0, {0: 1})
    assert CompletedCheckpointStore(objects).sweep_orphans(GRACE, now=GRACE) == []
    assert CompletedCheckpointStore(objects).sweep_orphans(GRACE, LONG_AFTER) == entries[:3]
    assert operator.checkpoints.runs.register("run-1004").number == 1004


def test_what_a_zombie_put_before_retained_epochs_is_deleted(objects: DictObjectStore) -> None:
    zombie = CountsOperator(objects, "run-z")
    zombie.run_epoch(0, {0: 1})
    operator = CountsOperator(objects, "run-b")
    for epoch in range(1, 5):
        operator.run_epoch(epoch, {0: epoch})
    operator.checkpoints.retain(2)
    zombie.run_subtask(1, 0, {0: 666}, None)
    swept = CompletedCheckpointStore(objects).sweep_orphans(GRACE, LONG_AFTER)
    assert len(swept) == 2
    assert all(f"epochs/{1:019d}-{zombie.run.number:010d}/" in name for name in swept)
    assert state_before(objects, 5) == {0: 4}


def test_what_is_not_ours_is_left_alone(objects: DictObjectStore) -> None:
    CountsOperator(objects).run_epoch(0, {0: 1})
    for name in ("epochs/notes.txt", "manifests/README", "other/file"):
        objects.put(name, b"x")
    directory = next(name for name in objects.objects if "barrier-" in name).rpartition("/")[0]
    objects.put(f"{directory}/.tmp", b"x")
    assert CompletedCheckpointStore(objects).sweep_orphans(GRACE, LONG_AFTER) == []


Damage = Callable[[bytes], bytes]


def flipped(data: bytes) -> bytes:
    return bytes([*data[:-20], data[-20] ^ 1, *data[-19:]])


def cut(data: bytes) -> bytes:
    return data[:-20]


def damage(objects: DictObjectStore, names: list[str], how: Damage) -> None:
    for name in names:
        objects.objects[name] = how(objects.objects[name])


@pytest.mark.parametrize("how", [flipped, cut])
@pytest.mark.parametrize("has_manifest", [True, False])
def test_nothing_is_deleted_while_a_damaged_object_may_name_any_file(
    objects: DictObjectStore, how: Damage, has_manifest: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A barrier of epoch 1 is damaged; the manifest of epoch 1 is damaged, too, or not yet
    written."""
    operator = CountsOperator(objects)
    operator.run_epoch(0, {0: 0})
    operator.run_epoch(1, {0: 1})
    orphans = [write_orphan(operator, epoch).name for epoch in (0, 1)]
    damaged = [*of_epoch(objects, "manifest", 1), *of_epoch(objects, "barrier", 1)[:1]]
    damage(objects, damaged, how)
    if not has_manifest:
        objects.delete(of_epoch(objects, "manifest", 1))
    before = dict(objects.objects)
    cleaner = CompletedCheckpointStore(objects)
    for _ in range(3):
        assert cleaner.sweep_orphans(GRACE, LONG_AFTER) == []
    assert objects.objects == before
    if how is flipped:
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == len(damaged) - (not has_manifest)
        assert all(any(name in line for line in lines) for name in damaged[not has_manifest :])
    # The sweep goes on after another run of epoch 1.
    base = operator.checkpoints.latest_before(1)
    for subtask in range(2):
        operator.run_subtask(1, subtask, {0: 2}, base, attempt=2)
    operator.checkpoints.complete(1, operator.run, 2)
    assert set(orphans) <= set(cleaner.sweep_orphans(GRACE, LONG_AFTER))
    assert state_before(objects, 2) == {0: 2}


def test_a_manifest_that_is_deleted_meanwhile_names_nothing(objects: DictObjectStore) -> None:
    operator = CountsOperator(objects)
    for epoch in range(2):
        operator.run_epoch(epoch, {0: epoch})
    [deleted] = of_epoch(objects, "manifest", 0)

    class Racing(DictObjectStore):
        def get(self, name: str) -> bytes:
            self.delete([deleted])
            return super().get(name)

    racing = Racing(objects=objects.objects, modified=objects.modified)
    assert CompletedCheckpointStore(racing).sweep_orphans(GRACE, LONG_AFTER) == []
    assert state_before(objects, 2) == {0: 1}
