"""The numbers of requests and listed names stay bounded for many subtasks and epochs.

`tests/benchmarks/scale.py` measures the same up to ten thousand subtasks, with the times of S3.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from checkpoint_store.epochs.operator_layout import EpochDirectory, ManifestName
from tests.support.operators.counts_operator import CountsOperator
from tests.support.operators.lone_subtasks import LoneSubtask, Operator, run_epoch, started
from tests.support.stores.counted_store import CountedStore, Counts

pytestmark = pytest.mark.usefixtures("without_threads")

RETAINED = 300
CHANGES = dict.fromkeys(range(0, 1024, 2), 1)


def store_with_epochs(operator: Operator) -> tuple[CountedStore, list[LoneSubtask]]:
    """Make a store with one real epoch, after many epochs that exist only as names in listings."""
    store = CountedStore()
    subtasks = started(store, operator)
    run_epoch(subtasks, RETAINED - 1, CHANGES)
    for epoch in range(RETAINED - 1):
        manifest = ManifestName(epoch, 1, operator.parallelism, f"{epoch:012x}", "s")
        store.fill(str(manifest), b"{}")
        store.fill(f"{EpochDirectory(epoch, 1)}/changelog-00000", b"")
    return store, subtasks


def counted(store: CountedStore, before: Counts) -> Counts:
    return store.counted().minus(before)


@pytest.mark.parametrize(("parallelism", "epochs"), [(16, 10), (120, 10), (600, 2)])
def test_an_epoch_takes_a_subtask_six_requests_and_few_names(parallelism: int, epochs: int) -> None:
    operator = Operator("run-a", parallelism, max_parallelism=1024)
    store, subtasks = store_with_epochs(operator)
    before = store.counted()
    for epoch in range(RETAINED, RETAINED + epochs):
        run_epoch(subtasks, epoch, CHANGES)
    counts = counted(store, before)
    assert counts.requests <= 6 * parallelism * epochs
    assert counts.listed <= 80 * parallelism * epochs
    # The last subtask of a group reads each barrier of the group once; nobody reads a complete
    # epoch.
    assert counts.gets <= parallelism * epochs


@pytest.mark.parametrize("parallelism", [256, 600])
def test_a_restore_reads_a_share_whatever_the_store_retains(parallelism: int) -> None:
    operator = Operator("run-a", parallelism, max_parallelism=2048)
    store, _ = store_with_epochs(operator)
    after = replace(operator, run_id="run-b", parallelism=2 * parallelism)
    LoneSubtask(store, after, 0)
    before = store.counted()
    host = LoneSubtask(store, after, parallelism)
    base = host.base(RETAINED)
    counts = counted(store, before)
    assert len(base.barriers) <= 100
    assert counts.requests <= 10
    assert counts.listed <= 30


@pytest.mark.long
@pytest.mark.parametrize("epochs", [1_000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_upkeep_of_an_old_query_costs_as_much_as_of_a_young_one(epochs: int) -> None:
    """Upkeep means epochs, retention and sweeps; a second run ended before its first epoch."""
    store = CountedStore()
    operator = CountsOperator(store, "run-a", 1)
    CountsOperator(store, "run-b", 1)
    costs: list[tuple[int, int]] = []
    for epoch in range(epochs):
        if epoch % 100 == 0:
            before = store.counted()
        operator.run_epoch(epoch, {0: epoch}, "snapshot" if epoch % 10 == 0 else "changelog")
        if epoch % 10 == 0:
            operator.checkpoints.retain(20)
        if epoch % 100 == 99:
            operator.checkpoints.sweep_orphans(grace_seconds=0.0, now=float("inf"))
            counts = counted(store, before)
            costs.append((counts.requests, counts.listed))
    assert costs[-1] == costs[2]
