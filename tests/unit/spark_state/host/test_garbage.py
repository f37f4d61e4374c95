"""Frozen garbage is freed in the end, but not too often."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from spark_state.host.garbage import FrozenGarbage
from tests.support.manual_clock import ManualClock


class Cycle:
    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def clock() -> Iterator[ManualClock]:
    threshold = gc.get_threshold()
    yield ManualClock()
    gc.unfreeze()
    gc.set_threshold(*threshold)


def frozen_cycle(garbage: FrozenGarbage) -> weakref.ref[Cycle]:
    cycle = Cycle()
    reference = weakref.ref(cycle)
    for _ in range(4):
        assert not garbage.freeze_if_due()
        gc.collect(0)
    assert garbage.freeze_if_due()
    assert not garbage.freeze_if_due()
    del cycle
    return reference


def test_frozen_garbage_is_freed_when_it_is_due(clock: ManualClock) -> None:
    garbage = FrozenGarbage(clock)
    garbage.begin()
    reference = frozen_cycle(garbage)
    gc.collect()
    assert not garbage.collect_if_due()
    assert reference() is not None
    clock.now = 61
    assert garbage.collect_if_due()
    assert reference() is None
    assert gc.get_freeze_count() > 0


def test_a_long_collection_is_followed_by_a_long_pause(clock: ManualClock) -> None:
    garbage = FrozenGarbage(clock)
    clock.now, clock.step = 61, 2.0
    assert garbage.collect_if_due()  # each look at the clock takes two seconds
    ended = clock.now
    clock.step = 0
    clock.now = ended + 199
    assert not garbage.collect_if_due()
    clock.now = ended + 200
    assert garbage.collect_if_due()
