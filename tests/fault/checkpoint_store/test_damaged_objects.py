"""A damaged object gives an error with its name and its epoch, and outages of a store lose
nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from checkpoint_store.epochs.operator_layout import (
    parse_barrier,
    parse_manifest,
    parse_state_file,
)
from checkpoint_store.errors import (
    CorruptObjectError,
    StoreUnavailableError,
)
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from tests.support.operators.counts_operator import CountsOperator, state_before
from tests.support.stores.fake_object_store import DictObjectStore, FakeTime, FlakyObjectStore

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures("without_threads")]

STATE = {0: 1, 3: 2, 7: 3}


@pytest.fixture
def objects() -> DictObjectStore:
    """Build a store with epochs 0 and 1. Epoch 1 has one state file, and its manifest names
    four."""
    store = DictObjectStore()
    operator = CountsOperator(store)
    operator.run_epoch(0, {0: 0, 7: 0})
    operator.run_epoch(1, STATE)
    return store


def names(objects: DictObjectStore, parse: Callable[[str], object]) -> list[str]:
    return sorted(name for name in objects.objects if parse(name))


@pytest.mark.parametrize("parse", [parse_state_file, parse_barrier])
def test_an_error_has_the_name_and_the_epoch_of_the_damaged_object(
    objects: DictObjectStore, parse: Callable[[str], object]
) -> None:
    objects.delete(names(objects, parse_manifest))
    name = names(objects, parse)[-1]
    objects.objects[name] = b""
    with pytest.raises(CorruptObjectError, match="restart the query") as caught:
        state_before(objects, 2)
    assert (caught.value.name, caught.value.epoch) == (name, 1)


def test_a_manifest_of_earlier_attempts_does_not_stand_for_a_damaged_one(
    objects: DictObjectStore,
) -> None:
    again = {group: value + 10 for group, value in STATE.items()}
    CountsOperator(objects).run_epoch(1, again, attempt=2)
    earlier, name = names(objects, parse_manifest)[-2:]
    assert parse_manifest(earlier).epoch == parse_manifest(name).epoch  # type: ignore[union-attr]
    objects.objects[name] = b""
    assert state_before(objects, 2) == again
    objects.objects[names(objects, parse_barrier)[-1]] = b""
    with pytest.raises(CorruptObjectError):
        state_before(objects, 2)


def test_an_epoch_is_run_through_short_failures_at_every_call() -> None:
    objects = DictObjectStore()
    flaky, time = FlakyObjectStore(objects), FakeTime()
    operator = CountsOperator(RetryingObjectStore(flaky, 60, time, time.sleep))
    calls = 0
    for epoch in range(40):
        before = flaky.calls
        flaky.after_effect = epoch % 2 == 1
        flaky.errors = []
        for number in range(20):
            flaky.errors.append(OSError("down") if number % 3 else ConnectionResetError("reset"))
        flaky.errors = flaky.errors[: epoch % 3]
        operator.run_epoch(epoch, {epoch % 8: epoch})
        operator.checkpoints.retain(2)
        calls += flaky.calls - before
    assert state_before(objects, 40) == {epoch % 8: epoch for epoch in range(40)}
    assert calls > 0


def test_a_store_that_stays_down_loses_nothing() -> None:
    objects = DictObjectStore()
    flaky, time = FlakyObjectStore(objects), FakeTime()
    operator = CountsOperator(RetryingObjectStore(flaky, 60, time, time.sleep))
    operator.run_epoch(0, {0: 1})
    base = operator.checkpoints.latest_before(1)
    flaky.is_away = lambda: True
    with pytest.raises(StoreUnavailableError, match="writing epochs/"):
        operator.run_subtask(1, 0, {0: 2}, base)
    with pytest.raises(StoreUnavailableError, match="listing begun"):
        operator.checkpoints.latest_before(1)
    flaky.is_away = lambda: False
    assert state_before(objects, 1) == {0: 1}
    operator.run_epoch(1, {0: 2}, attempt=2)
    assert state_before(objects, 2) == {0: 2}


@dataclass
class Outage:
    """An outage that begins at a call to the store and lasts for some seconds."""

    first_call: int
    seconds: float
    flaky: FlakyObjectStore
    time: FakeTime
    back_at: float | None = None

    def is_away(self) -> bool:
        if self.back_at is None and self.flaky.calls >= self.first_call:
            self.back_at = self.time.now + self.seconds
        return self.back_at is not None and self.time.now < self.back_at


def test_epochs_outlast_outages_that_begin_at_any_call_and_grow_longer() -> None:
    objects = DictObjectStore()
    flaky, time = FlakyObjectStore(objects), FakeTime()
    operator = CountsOperator(RetryingObjectStore(flaky, 120, time, time.sleep))
    for epoch in range(30):
        began = time.now
        outage = Outage(flaky.calls + epoch % 10, 4.0 * epoch, flaky, time)
        flaky.is_away = outage.is_away
        operator.run_epoch(epoch, {epoch % 8: epoch})
        operator.checkpoints.retain(2)
        assert time.now >= began + outage.seconds
    assert state_before(objects, 30) == {epoch % 8: epoch for epoch in range(22, 30)}
