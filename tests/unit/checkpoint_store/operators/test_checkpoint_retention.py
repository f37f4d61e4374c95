"""Retention keeps every file that a retained checkpoint needs, and deletes the rest (I8)."""

from __future__ import annotations

import pytest

from checkpoint_store.epochs.operator_layout import parse_manifest
from checkpoint_store.files.state_handle import StateFileKind
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from tests.support.operators.counts_operator import CountsOperator, state_before
from tests.support.operators.taken_back import take_back
from tests.support.stores.fake_object_store import DictObjectStore
from tests.support.stores.sealed_documents import of_version


def epochs_of(objects: DictObjectStore, directory: str) -> list[int]:
    names = [name for name in objects.objects if name.startswith(f"{directory}/")]
    return sorted({int(name.split("/")[1].split("-")[0]) for name in names})


def of_kind(objects: DictObjectStore, kind: str) -> list[int]:
    names = [name for name in objects.objects if f"/{kind}-" in name]
    return sorted({int(name.split("/")[1].split("-")[0]) for name in names})


def test_only_the_newest_epochs_are_kept_and_what_they_need(objects: DictObjectStore) -> None:
    operator = CountsOperator(objects)
    for epoch in range(6):
        operator.run_epoch(epoch, {0: epoch, 7: epoch}, "snapshot" if epoch == 4 else "changelog")
    assert operator.checkpoints.retain(3) == 3 + 6
    assert epochs_of(objects, "manifests") == [3, 4, 5]
    assert of_kind(objects, "barrier") == [3, 4, 5]
    # Epoch 3 needs all changelogs from the beginning; the snapshot of epoch 4 replaces the
    # changelogs.
    assert of_kind(objects, "changelog") == [0, 1, 2, 3, 5]
    assert operator.checkpoints.retain(2) == 1 + 2 + 8
    assert of_kind(objects, "changelog") == [5]
    assert state_before(objects, 5) == {0: 4, 7: 4}
    assert operator.checkpoints.retain(2) == 0


def test_a_process_reads_each_manifest_once(objects: DictObjectStore) -> None:
    writer = CountsOperator(objects)
    for epoch in range(6):
        writer.run_epoch(epoch, {0: epoch})
    cleaner = CompletedCheckpointStore(objects)
    objects.reads.clear()
    cleaner.retain(3)
    assert len(objects.reads) == 6
    objects.reads.clear()
    writer.run_epoch(6, {0: 6})
    cleaner.retain(3)
    assert [parse_manifest(name) is not None for name in objects.reads] == [True]


def test_a_process_lists_an_expired_epoch_once(objects: DictObjectStore) -> None:
    operator = CountsOperator(objects)
    for epoch in range(6):
        operator.run_epoch(epoch, {0: epoch})
    operator.checkpoints.retain(3)
    # The changelogs of the expired epochs are still needed, so their directories remain.
    assert of_kind(objects, "changelog") == [0, 1, 2, 3, 4, 5]
    objects.listings.clear()
    operator.checkpoints.retain(3)
    assert sorted(objects.listings) == ["begun", "epochs", "manifests", "pins"]


def test_an_abandoned_timeline_ages_out_with_the_live_one(objects: DictObjectStore) -> None:
    first = CountsOperator(objects, "run-a")
    for epoch in range(8):
        first.run_epoch(epoch, {0: epoch})
    take_back(objects, 4)
    second = CountsOperator(objects, "run-b")
    second.run_epoch(4, {1: 4})
    # The abandoned timeline has greater epochs, but retention keeps the live timeline.
    second.checkpoints.retain(2)
    assert state_before(objects, 5) == {0: 3, 1: 4}
    assert epochs_of(objects, "manifests") == [3, 4, 5, 6, 7]
    for epoch in range(5, 12):
        second.run_epoch(epoch, {1: epoch})
        second.checkpoints.retain(2)
    assert epochs_of(objects, "manifests") == [10, 11]
    assert state_before(objects, 12) == {0: 3, 1: 11}


def test_nothing_is_deleted_while_a_run_has_completed_nothing(objects: DictObjectStore) -> None:
    first = CountsOperator(objects, "run-a")
    for epoch in range(8):
        first.run_epoch(epoch, {0: epoch})
    second = CountsOperator(objects, "run-b")
    base = second.checkpoints.latest_before(7)
    for subtask in range(2):
        second.run_subtask(7, subtask, {1: 7}, base)
    assert first.checkpoints.retain(2) == 0
    second.checkpoints.complete(7, second.run, 2)
    assert first.checkpoints.retain(2) > 0
    second.checkpoints.starts.note_reached("run-b", 8)
    assert state_before(objects, 8) == {0: 6, 1: 7}


def test_a_run_that_ended_without_a_barrier_stops_no_retention(objects: DictObjectStore) -> None:
    """Retention works in the former run, which goes on, and in the next run."""
    first = CountsOperator(objects, "run-a")
    CountsOperator(objects, "run-b")
    for epoch in range(20):
        first.run_epoch(epoch, {0: epoch})
        first.checkpoints.retain(3)
    assert epochs_of(objects, "manifests") == [17, 18, 19]
    begun = CountsOperator(objects, "run-c")
    begun.run_subtask(20, 0, {0: 20}, begun.checkpoints.latest_before(20))
    last = CountsOperator(objects, "run-d")
    for epoch in range(20, 220):
        last.run_epoch(epoch, {0: epoch})
        last.checkpoints.retain(3)
    assert epochs_of(objects, "manifests") == [217, 218, 219]


def damage(objects: DictObjectStore, name: str) -> None:
    """Flip a bit in the middle of an object."""
    intact = bytearray(objects.objects[name])
    intact[len(intact) // 2] ^= 1
    objects.objects[name] = bytes(intact)


def of_epoch(objects: DictObjectStore, kind: str, epoch: int) -> list[str]:
    """Return the names of an epoch's manifests or barriers."""
    prefix = f"manifests/{epoch:019d}-" if kind == "manifest" else f"epochs/{epoch:019d}-"
    return [n for n in objects.objects if n.startswith(prefix) and kind in n]


def with_snapshots(objects: DictObjectStore, epochs: int) -> CountsOperator:
    operator = CountsOperator(objects)
    for epoch in range(epochs):
        kind: StateFileKind = "snapshot" if epoch % 3 == 2 else "changelog"
        operator.run_epoch(epoch, {0: epoch, 7: epoch}, kind)
    return operator


def test_no_file_is_deleted_while_a_retained_manifest_may_name_any(
    objects: DictObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    """A barrier of the same epoch is damaged, too. Manifests and barriers still expire; once the
    damaged objects have expired, the next sweep deletes the remaining files."""
    operator = with_snapshots(objects, 10)
    damaged = [*of_epoch(objects, "manifest", 8), *of_epoch(objects, "barrier", 8)[:1]]
    for name in damaged:
        damage(objects, name)
    files = of_kind(objects, "changelog"), of_kind(objects, "snapshot")
    cleaner = CompletedCheckpointStore(objects)
    for opened in (cleaner, cleaner, CompletedCheckpointStore(objects)):
        opened.retain(4)
        opened.sweep_orphans(0.0, now=1.0)
    assert (of_kind(objects, "changelog"), of_kind(objects, "snapshot")) == files
    assert epochs_of(objects, "manifests") == [6, 7, 8, 9]
    assert of_kind(objects, "barrier") == [6, 7, 8, 9]
    for epoch in (6, 7, 9):
        assert state_before(objects, epoch + 1) == {0: epoch, 7: epoch}
    said = [record.getMessage() for record in caplog.records]
    assert sorted(name for name in damaged for line in said if name in line) == sorted(damaged)
    for epoch in range(10, 15):
        operator.run_epoch(epoch, {0: epoch, 7: epoch}, "snapshot")
        cleaner.retain(4)
    cleaner.sweep_orphans(0.0, now=1.0)
    assert of_kind(objects, "changelog") == []
    assert of_kind(objects, "snapshot") == epochs_of(objects, "manifests") == [11, 12, 13, 14]


def test_a_retained_manifest_of_a_newer_release_is_passed_over(objects: DictObjectStore) -> None:
    with_snapshots(objects, 10)
    [manifest] = of_epoch(objects, "manifest", 8)
    objects.objects[manifest] = of_version(2, objects.objects[manifest])
    files = of_kind(objects, "changelog")
    assert CompletedCheckpointStore(objects).retain(4) > 0
    assert epochs_of(objects, "manifests") == [6, 7, 8, 9]
    assert max(set(files) - set(of_kind(objects, "changelog"))) < 6


def test_a_damaged_manifest_that_was_replaced_keeps_nothing(objects: DictObjectStore) -> None:
    operator = with_snapshots(objects, 10)
    [replaced] = of_epoch(objects, "manifest", 9)
    damage(objects, replaced)
    operator.run_epoch(9, {0: 99}, attempt=2)
    expected = objects.copy()
    expected.delete([replaced])
    CompletedCheckpointStore(expected).retain(4)
    CompletedCheckpointStore(objects).retain(4)
    assert objects.objects.keys() - expected.objects.keys() == {replaced}


@pytest.mark.parametrize("damages_barriers", [False, True])
def test_a_damaged_manifest_expires(objects: DictObjectStore, damages_barriers: bool) -> None:
    """The files that the epoch's barriers name are deleted, too. If a barrier is damaged, the sweep
    deletes the files as orphans."""
    operator = CountsOperator(objects)
    for epoch in range(5):
        operator.run_epoch(epoch, {0: epoch}, "snapshot")
    damage(objects, *of_epoch(objects, "manifest", 0))
    if damages_barriers:
        damage(objects, of_epoch(objects, "barrier", 0)[0])
    CompletedCheckpointStore(objects).retain(2)
    assert epochs_of(objects, "manifests") == [3, 4]
    assert of_kind(objects, "snapshot") == ([0, 3, 4] if damages_barriers else [3, 4])
    CompletedCheckpointStore(objects).sweep_orphans(0.0, now=1.0)
    assert of_kind(objects, "snapshot") == [3, 4]
