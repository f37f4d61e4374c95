"""Expired values, elements and entries are invisible at once and removed later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from spark_state.errors import ConfigurationError, StateMigrationError
from spark_state.processor import timed_steps
from tests.support.operators.timed_epochs import TimedEpochs

TTL_MS = 100


class Expiring(StatefulProcessor):
    """Keeps each row in three states that expire. Emits the number of rows seen and the sum of all
    unexpired values. A row with a negative value changes nothing."""

    def __init__(self, ttl_ms: int | None = TTL_MS) -> None:
        self._ttl_ms = ttl_ms

    def init(self, handle: Any) -> None:
        self._last = handle.getValueState("last", "n bigint", self._ttl_ms)
        self._all = handle.getListState("all", "n bigint", self._ttl_ms)
        self._counts = handle.getMapState("counts", "n bigint", "times bigint", self._ttl_ms)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            if row.value >= 0:
                self._last.update((row.value,))
                self._all.appendValue((row.value,))
                before = self._counts.getValue((row.value,))
                self._counts.updateValue((row.value,), (before.times + 1 if before else 1,))
        last = self._last.get()
        assert self._last.exists() == (last is not None)
        listed = [n for (n,) in self._all.get()]
        assert self._all.exists() == bool(listed)
        counted = {n: times for (n,), (times,) in self._counts.iterator()}
        assert [*map(self._counts.containsKey, zip(range(9)))] == [n in counted for n in range(9)]
        assert sum(times for (times,) in self._counts.values()) == sum(counted.values())
        assert self._counts.exists() == bool(counted)
        total = 10_000 * (last[0] if last else 0) + 100 * sum(listed) + sum(counted.values())
        yield Row(key=key[0], rows=len(listed), total=total)

    def close(self) -> None:
        pass


def test_a_value_is_there_until_its_time_and_a_put_sets_it_anew() -> None:
    epochs = TimedEpochs(Expiring())
    assert epochs.epoch([("a", 1), ("a", 2)], 1000) == [("a", 2, 20_302)]
    assert epochs.epoch([("a", 1)], 1099) == [("a", 3, 10_403)]
    # At 1100, the value 2 and the first 1 of the list expire; the map entry of 1 was put again.
    assert epochs.epoch([("a", -1)], 1100) == [("a", 1, 10_102)]
    assert epochs.epoch([("a", -1)], 1199) == [("a", 0, 0)]


@pytest.mark.parametrize("from_snapshot", [False, True])
def test_what_has_not_expired_is_restored_with_its_time(from_snapshot: bool) -> None:
    epochs = TimedEpochs(Expiring())
    epochs.epoch([("a", 1)], 1000)
    epochs.epoch([("a", 2), ("b", 3)], 1050)
    epochs.restart(from_snapshot=from_snapshot)
    assert epochs.epoch([("a", -1), ("b", -1)], 1100) == [("a", 1, 20_201), ("b", 1, 30_301)]
    epochs.restart(from_snapshot=from_snapshot)
    assert epochs.epoch([("a", -1), ("b", -1)], 1150) == [("a", 0, 0), ("b", 0, 0)]


def test_what_has_expired_is_removed_and_its_removal_can_be_undone() -> None:
    epochs = TimedEpochs(Expiring())
    epochs.epoch([("a", 1), ("b", 2)], 1000)
    epochs.epoch([("b", 3)], 1050)
    assert len(epochs.backend) == 8
    epochs.epoch([], 1100)
    assert len(epochs.backend) == 3
    removed = epochs.files[-1]
    assert set(removed["_op"].to_pylist()) == {"delete"}
    assert removed.num_rows == 5
    epochs.backend.undo_sealed()
    assert len(epochs.backend) == 8
    assert epochs.run([], 1100) == []
    epochs.backend.rollback()
    assert len(epochs.backend) == 8


def test_an_epoch_removes_no_more_than_its_bound_and_nobody_sees_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timed_steps, "_EXPIRED_AT_LEAST", 10)
    epochs = TimedEpochs(Expiring())
    epochs.epoch([(f"k{n}", 1) for n in range(40)], 1000)
    assert len(epochs.backend) == 120
    left = []
    for _ in range(3):
        # A read of a key changes nothing, so the bound is 10.
        assert epochs.epoch([("k39", -1)], 2000) == [("k39", 0, 0)]
        left.append(len(epochs.backend))
    assert left == [110, 100, 90]
    # An epoch may remove more values than the epoch writes, so removal keeps pace.
    epochs.epoch([(f"n{n}", 1) for n in range(40)], 2050)
    assert len(epochs.backend) == 120


def test_values_that_were_put_before_keep_their_time_when_the_duration_changes() -> None:
    epochs = TimedEpochs(Expiring())
    epochs.epoch([("a", 1)], 1000)
    longer = TimedEpochs(Expiring(ttl_ms=1000), files=epochs.files)
    longer.restart()
    assert longer.epoch([("a", -1)], 1099) == [("a", 1, 10_101)]
    assert longer.epoch([("a", 2)], 1100) == [("a", 1, 20_201)]
    assert longer.epoch([("a", -1)], 2099) == [("a", 1, 20_201)]


@pytest.mark.parametrize(("before", "after"), [(None, 100), (100, None)])
def test_a_state_that_begins_or_ceases_to_expire_is_refused(
    before: int | None, after: int | None
) -> None:
    epochs = TimedEpochs(Expiring(before))
    changed = TimedEpochs(Expiring(after))
    (state,) = (state for state in changed.spec.states if state.name == "last")
    with pytest.raises(StateMigrationError, match="'last' is in the store with"):
        epochs.backend.state(state)


@pytest.mark.parametrize("ttl_ms", [0, -5, True, "100", 1.5])
def test_a_time_to_live_must_be_positive_milliseconds(ttl_ms: Any) -> None:
    condition = "STATEFUL_PROCESSOR_TTL_DURATION_MUST_BE_POSITIVE"
    with pytest.raises(ConfigurationError, match=rf"^\[{condition}\].*state=last.* is {ttl_ms!r}"):
        TimedEpochs(Expiring(ttl_ms))


@pytest.mark.parametrize(("time_mode", "shown"), [("None", "NoTime"), ("EventTime", "EventTime")])
def test_a_time_to_live_needs_processing_time(time_mode: str, shown: str) -> None:
    condition = "STATEFUL_PROCESSOR_INCORRECT_TIME_MODE_TO_ASSIGN_TTL"
    with pytest.raises(
        ConfigurationError, match=rf"^\[{condition}\].*state=last.*timeMode={shown}"
    ):
        TimedEpochs(Expiring(), time_mode)
