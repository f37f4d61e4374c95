"""A host that is killed at any write around a merge of changelogs leaves whole state for a new
host.

The merge is written beside epochs. So a kill may come before the merge, during the merge, and
before or after the barrier that names the merge.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from checkpoint_store.epochs.published_objects import PublishedObjects
from spark_state.checkpointing import snapshot_policy
from spark_state.subtasks.maintenance import Maintenance
from tests.support.operators.subtasks import Host, operator, use_store
from tests.support.stores.fake_object_store import (
    DictObjectStore,
    StopMode,
    Stopped,
    StoppingObjectStore,
)

pytestmark = pytest.mark.fault

KEYS = [f"key {number}" for number in range(12_000)]
MANY = 8
EPOCHS = MANY + 3
MODES: tuple[StopMode, ...] = ("before the write", "after the write")


@dataclass
class KilledObjectStore(StoppingObjectStore):
    """A store that writes nothing after the fatal write, in any thread."""

    def _counts(self) -> bool:
        self.writes += 1
        return self.writes >= self.stop_at


def changed_in(epoch: int) -> list[str]:
    return KEYS[epoch::97][:3] if epoch else KEYS


def totals_after(epochs: int) -> dict[str, int]:
    totals = dict.fromkeys(KEYS, 0)
    for epoch in range(epochs):
        for key in changed_in(epoch):
            totals[key] += epoch
    return totals


def run(
    store: KilledObjectStore, folder: Path, maintenance: Maintenance, patch: pytest.MonkeyPatch
) -> list[int]:
    """Run all epochs in a host until the kill. Return the number of writes after each epoch."""
    use_store(patch, store)
    writes = []
    host = Host(operator(folder), run_id="run-1").open(maintenance)
    with suppress(Stopped):
        for epoch in range(EPOCHS):
            host.epoch(epoch, [(key, epoch) for key in changed_in(epoch)])
            host.finish_maintenance()
            writes.append(store.writes)
    host.close()
    return writes


def merged_files(objects: DictObjectStore) -> list[str]:
    """The names of merged changelogs in manifests: more rows than an epoch, fewer than all keys."""
    published = PublishedObjects(objects)
    manifests = [published.read_manifest(name) for name in published.manifests()]
    handles = {
        h for manifest in manifests for barrier in manifest.barriers for h in barrier.handles
    }
    return [handle.name for handle in handles if 3 < handle.rows < len(KEYS)]


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_lost_by_a_kill_at_any_write_around_a_merge(
    tmp_path: Path, maintenance: Maintenance, monkeypatch: pytest.MonkeyPatch, mode: StopMode
) -> None:
    monkeypatch.setattr(snapshot_policy, "MANY_FILES", MANY)
    whole = KilledObjectStore(DictObjectStore(), 1_000, mode)
    writes = run(whole, tmp_path, maintenance, monkeypatch)
    assert merged_files(whole.store)
    # The merge begins after the epoch that makes the files too many.
    for stop_at in range(writes[MANY - 2] + 1, writes[-1] + 1):
        killed = KilledObjectStore(DictObjectStore(), stop_at, mode)
        run(killed, tmp_path, maintenance, monkeypatch)
        completed = {name.epoch for name in PublishedObjects(killed.store).manifests()}
        run_again(killed.store, max(completed) + 1, tmp_path, maintenance, monkeypatch)


def run_again(
    objects: DictObjectStore,
    epoch: int,
    folder: Path,
    maintenance: Maintenance,
    patch: pytest.MonkeyPatch,
) -> None:
    """Run an epoch that reads all keys in a new host. The epoch before may be completed or not."""
    use_store(patch, objects)
    host = Host(operator(folder), run_id="run-2").open(maintenance)
    output = host.epoch(epoch, [(key, 0) for key in KEYS], attempt=100)
    host.close()
    assert {key: total for key, (_, total) in output.items()} == totals_after(epoch)
