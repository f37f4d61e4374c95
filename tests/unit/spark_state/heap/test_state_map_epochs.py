"""Every epoch of a map stays unchanged under later epochs, and costs O(changes)."""

from __future__ import annotations

import gc

import pytest

from spark_state.heap.state_map_epochs import (
    BUCKETS_PER_OVERLAID_CHANGE,
    LEAST_OVERLAY,
    StateMapEpoch,
    StateMapEpochs,
)

Epochs = StateMapEpochs[str, int]
Numbers = StateMapEpochs[int, int]


def open_snapshots(epochs: StateMapEpochs[int, int]) -> int:
    return len(epochs._map.snapshot_versions)


def test_an_epoch_that_is_not_after_the_newest_is_our_bug() -> None:
    epochs: Epochs = StateMapEpochs(3, [])
    with pytest.raises(AssertionError, match="in order"):
        epochs.apply(3, {})


def test_a_new_base_is_taken_when_the_overlay_is_full_and_not_before() -> None:
    epochs: Numbers = StateMapEpochs(0, [(key, 0) for key in range(10)])
    first = epochs.newest
    epochs.apply(1, dict.fromkeys(range(LEAST_OVERLAY), 1))
    assert epochs.newest.overlaid is first.overlaid
    epochs.apply(2, {3: 2, 5000: 2})
    assert epochs.newest.overlaid is not first.overlaid
    assert epochs.newest.overlaid.overlay == {}
    assert (first.get(3), epochs.newest.get(3), epochs.newest.get(4)) == (0, 2, 1)
    assert len(first.overlaid.overlay) == LEAST_OVERLAY, "the last epoch is not in it"


@pytest.mark.long
def test_the_buckets_copied_are_proportional_to_the_changes() -> None:
    epochs: Numbers = StateMapEpochs(0, [(key, 0) for key in range(100_000)])
    buckets = len(epochs._map.primary_table)
    copied = changes = 0
    for number in range(1, 200):
        overlaid = epochs.newest.overlaid
        epochs.apply(number, dict.fromkeys(range(number * 100, number * 100 + 500), number))
        changes += 500
        copied += buckets * (epochs.newest.overlaid is not overlaid)
    assert 0 < copied <= BUCKETS_PER_OVERLAID_CHANGE * changes


def test_a_base_is_released_when_its_last_reader_has_let_go() -> None:
    epochs: Numbers = StateMapEpochs(0, [(key, 0) for key in range(10)])
    kept: StateMapEpoch[int, int] | None = epochs.newest
    full = dict.fromkeys(range(LEAST_OVERLAY + 1), 1)
    for number in (1, 2, 3):
        epochs.apply(number, full)
    assert open_snapshots(epochs) == 3, "the newest, the one before it, and the kept one"
    kept = None
    gc.collect()
    epochs.apply(4, {})
    assert kept is None
    assert open_snapshots(epochs) == 1
