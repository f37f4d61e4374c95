"""Timers are registered, listed, deleted and fired as in Spark, and stored as state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from spark_state.errors import ConfigurationError, OutputRowError
from tests.support.operators.timed_epochs import TimedEpochs

Init = Callable[[Any], Any]


class TimerSessions(StatefulProcessor):
    """Counts the rows of a key. A row's value is the time of a timer, which emits and clears the
    count; a negative value deletes the timer."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            (count,) = self._count.get() or (0,)
            self._count.update((count + 1,))
            if row.value < 0:
                self._handle.deleteTimer(-row.value)
            else:
                self._handle.registerTimer(row.value)
        return iter([])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        (count,) = self._count.get() or (0,)
        self._count.clear()
        yield Row(key=key[0], rows=count, total=expiredTimerInfo.getExpiryTimeInMs())

    def close(self) -> None:
        pass


class ListsTimers(TimerSessions):
    """Emits the number of a key's timers as rows, and the sum of the timers as total. A fired timer
    emits the number and the timer's time."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        list(super().handleInputRows(key, rows, timerValues))
        timers = list(self._handle.listTimers())
        assert timers == sorted(timers)
        yield Row(key=key[0], rows=len(timers), total=sum(timers))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        timers = list(self._handle.listTimers())
        yield Row(key=key[0], rows=len(timers), total=expiredTimerInfo.getExpiryTimeInMs())


class Reacts(TimerSessions):
    """At a fired timer, deletes the next timer, and registers a timer whose time has passed."""

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        expiry_ms = expiredTimerInfo.getExpiryTimeInMs()
        self._handle.deleteTimer(expiry_ms + 1)
        if expiry_ms < 50:
            self._handle.registerTimer(expiry_ms + 50)
        yield Row(key=key[0], rows=0, total=expiry_ms)


@pytest.mark.parametrize("time_mode", ["ProcessingTime", "EventTime"])
def test_a_timer_fires_in_the_epoch_that_reaches_its_time_and_once(time_mode: str) -> None:
    epochs = TimedEpochs(TimerSessions(), time_mode)
    assert epochs.epoch([("a", 100), ("a", 100), ("b", 201)], 50) == []
    assert epochs.epoch([], 99) == []
    assert epochs.epoch([], 100) == [("a", 2, 100)]
    assert epochs.epoch([("a", 150)], 200) == [("a", 1, 150)]
    assert epochs.epoch([], 1000) == [("b", 1, 201)]
    assert epochs.epoch([], 2000) == []


def test_timers_fire_in_the_order_of_time_and_then_of_key() -> None:
    epochs = TimedEpochs(TimerSessions())
    keys = ["d", "b", "a", "c", "e"]
    epochs.epoch([(key, time_ms) for key in keys for time_ms in (30, 10, 20)], 0)
    fired = epochs.epoch([], 25)
    assert [(total, key) for key, _, total in fired] == [
        (time_ms, key) for time_ms in (10, 20) for key in sorted(keys)
    ]
    assert [(total, key) for key, _, total in epochs.epoch([], 30)] == [
        (30, key) for key in sorted(keys)
    ]


def test_a_timer_for_a_time_that_has_come_fires_in_the_same_epoch_after_all_rows() -> None:
    epochs = TimedEpochs(TimerSessions())
    assert epochs.epoch([("b", 7), ("a", 5), ("b", 5)], 10) == [
        ("a", 1, 5),
        ("b", 2, 5),
        ("b", 0, 7),
    ]


def test_a_deleted_timer_does_not_fire_and_deleting_none_does_nothing() -> None:
    epochs = TimedEpochs(TimerSessions())
    assert epochs.epoch([("a", 20), ("a", 30)], 0) == []
    assert epochs.epoch([("a", -20), ("a", -99), ("b", -20)], 1) == []
    assert epochs.epoch([], 100) == [("a", 4, 30)]


def test_timers_are_listed_in_order_with_the_one_that_fires() -> None:
    epochs = TimedEpochs(ListsTimers())
    assert epochs.epoch([("a", 30), ("a", 10), ("a", 20), ("a", 20), ("b", 40)], 0) == [
        ("a", 3, 60),
        ("b", 1, 40),
    ]
    assert epochs.epoch([], 20) == [("a", 3, 10), ("a", 2, 20)]


def test_what_is_due_is_decided_before_the_first_timer_fires() -> None:
    epochs = TimedEpochs(Reacts())
    epochs.epoch([("a", 1), ("a", 2)], 0)
    assert [total for _, _, total in epochs.epoch([], 100)] == [1, 2]
    assert [total for _, _, total in epochs.epoch([], 100)] == [51, 52]
    assert epochs.epoch([], 1000) == []


@pytest.mark.parametrize("from_snapshot", [False, True])
def test_timers_are_state_that_a_restart_goes_on_with(from_snapshot: bool) -> None:
    epochs = TimedEpochs(TimerSessions())
    epochs.epoch([("a", 10), ("a", 20), ("b", 20), ("c", 30)], 0)
    epochs.epoch([("c", -30)], 15)
    epochs.restart(from_snapshot=from_snapshot)
    assert epochs.epoch([], 100) == [("a", 0, 20), ("b", 1, 20)]
    epochs.restart(from_snapshot=from_snapshot)
    assert epochs.epoch([], 1000) == []


def test_an_epoch_that_is_rolled_back_registers_deletes_and_fires_no_timer() -> None:
    epochs = TimedEpochs(TimerSessions())
    epochs.epoch([("a", 10), ("b", 10)], 0)
    for _ in range(2):
        assert epochs.run([("a", -10), ("c", 5)], 20) == [("c", 1, 5), ("b", 1, 10)]
        epochs.backend.rollback()
    assert epochs.backend.next_timer_ms() == 10
    assert epochs.epoch([], 20) == [("a", 1, 10), ("b", 1, 10)]
    epochs.backend.undo_sealed()
    assert epochs.epoch([], 20) == [("a", 1, 10), ("b", 1, 10)]


def test_looking_for_what_is_due_looks_at_no_other_timer() -> None:
    epochs = TimedEpochs(TimerSessions())
    epochs.epoch([(f"key {n}", 1000 + n) for n in range(2000)], 0)
    index = epochs.backend._states["$procTimers"].table._maps.due
    looked_at = 0

    class Counting(dict[Any, Any]):
        def __iter__(self) -> Iterator[Any]:
            nonlocal looked_at
            for entry in super().__iter__():
                looked_at += 1
                yield entry

    for time_ms in list(index._entries):
        index._entries[time_ms] = Counting(index._entries[time_ms])
    assert len(epochs.run([], 1002)) == 3
    assert looked_at == 3


class ReturnsNone(TimerSessions):
    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        return None


def test_a_handler_that_returns_none_is_an_error_that_names_the_key() -> None:
    epochs = TimedEpochs(ReturnsNone())
    with pytest.raises(OutputRowError, match=r"handleExpiredTimer returned None for key .'a',."):
        epochs.run([("a", 1)], 5)


def test_in_time_mode_none_a_timer_is_refused_with_sparks_condition() -> None:
    condition = "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_TIME_MODE"
    with pytest.raises(
        ConfigurationError, match=rf"^\[{condition}\].*operation=register_timer.*NoTime"
    ):
        TimedEpochs(TimerSessions(), "None").run([("a", 1)], 5)


@pytest.mark.parametrize("given", ["5", 5.0, None, True])
def test_a_timestamp_that_is_no_int_is_refused(given: Any) -> None:
    class Registers(TimerSessions):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
            self._handle.registerTimer(given)
            return iter([])

    with pytest.raises(ConfigurationError, match=f"{given!r} is no timestamp of a timer"):
        TimedEpochs(Registers()).run([("a", 1)], 5)
