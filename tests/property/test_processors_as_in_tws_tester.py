"""Random processors, compared with PySpark's own in-memory runner of StatefulProcessors.

A processor here is a script: what it does with its states and timers when rows come and when timers
fire. The script is drawn for each example, so the processors use all states, clear them, iterate
over them, register and delete timers, and raise errors in the middle of an epoch. Epochs that fail
are rolled back and run again without the error; between epochs the state may be restored from its
files, or from a snapshot. PySpark's runner does none of this: it gets each epoch once.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.tws_tester import TwsTester

from tests.support.timed_epochs import TimedEpochs

Call = tuple[Any, ...]
KEYS = "abc"

small = st.integers(0, 3)
calls = st.one_of(
    st.tuples(st.just("update"), small),
    st.tuples(st.sampled_from(["clear value", "clear list", "clear map", "list timers"])),
    st.tuples(st.sampled_from(["look at value", "look at list", "look at map"])),
    st.tuples(st.sampled_from(["put", "append list"]), st.lists(small, min_size=1, max_size=3)),
    st.tuples(st.just("append"), small),
    st.tuples(st.just("set"), small, small),
    st.tuples(st.sampled_from(["remove", "look up"]), small),
    st.tuples(st.sampled_from(["register", "register", "unregister"]), st.integers(0, 60)),
)
scripts = st.lists(st.lists(calls, max_size=4), min_size=1, max_size=5)
epochs = st.tuples(
    st.dictionaries(st.sampled_from(KEYS), st.lists(st.integers(0, 9), min_size=1, max_size=2)),
    st.integers(1, 15),
    st.sampled_from(["runs", "runs", "fails first", "restarts", "restarts from a snapshot"]),
)


class BrokenOffError(Exception):
    """A processor's own error."""


class Scripted(StatefulProcessor):
    """Row n of a key runs line n of the script, modulo its length; a timer the line of its time.
    What it sees goes into the output, as a checksum. Row `breaks_at` of an epoch raises."""

    def __init__(self, script: Sequence[Sequence[Call]], breaks_at: int | None = None) -> None:
        self._script = script
        self._breaks_at = breaks_at

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._value = handle.getValueState("value", "n bigint")
        self._list = handle.getListState("list", "n bigint")
        self._map = handle.getMapState("map", "k bigint", "n bigint")
        self._rows = 0

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        seen: list[Any] = [timerValues.getCurrentProcessingTimeInMs()]
        for row in rows:
            if self._rows == self._breaks_at:
                raise BrokenOffError
            self._rows += 1
            lines = self._script[row.value % len(self._script)]
            seen += [self.run(call, seen[0]) for call in lines]
        yield Row(key=key[0], rows=0, total=zlib.crc32(repr(seen).encode()))

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        expiry_ms = expiredTimerInfo.getExpiryTimeInMs()
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        # A timer of a key may not touch another that is due: who fires then differs between
        # Spark's runner, which looks at each key's timers anew, and Spark's operator.
        lines = self._script[expiry_ms % len(self._script)]
        seen = [self.run(c, now_ms + 1000) for c in lines if c[0] not in ("unregister", "register")]
        yield Row(key=key[0], rows=expiry_ms, total=zlib.crc32(repr(seen).encode()))

    def run(self, call: Call, now_ms: int) -> Any:
        match call:
            case "update", n:
                self._value.update((n,))
            case ("clear value",):
                self._value.clear()
            case ("look at value",):
                return self._value.exists(), self._value.get()
            case "put", items:
                self._list.put([(n,) for n in items])
            case "append list", items:
                self._list.appendList([(n,) for n in items])
            case "append", n:
                self._list.appendValue((n,))
            case ("clear list",):
                self._list.clear()
            case ("look at list",):
                return self._list.exists(), [tuple(item) for item in self._list.get()]
            case _:
                return self.run_on_map_or_timers(call, now_ms)
        return None

    def run_on_map_or_timers(self, call: Call, now_ms: int) -> Any:
        match call:
            case "set", k, n:
                self._map.updateValue((k,), (n,))
            case "remove", k:
                self._map.removeKey((k,))
            case "look up", k:
                value = self._map.getValue((k,))
                return self._map.containsKey((k,)), value and tuple(value)
            case ("clear map",):
                self._map.clear()
            case ("look at map",):
                # Spark gives no order of entries.
                entries = sorted((tuple(k), tuple(v)) for k, v in self._map.iterator())
                keys, values = sorted(map(tuple, self._map.keys())), list(self._map.values())
                return bool(entries), entries, keys, len(values)
            case "register", delay:
                self._handle.registerTimer(now_ms + delay)
            case "unregister", delay:
                self._handle.deleteTimer(now_ms + delay)
            case ("list timers",):
                return sorted(self._handle.listTimers())
        return None

    def close(self) -> None:
        pass


class InTester:
    """The same epochs in PySpark's runner, which takes one key at a time."""

    def __init__(self, script: Sequence[Sequence[Call]]) -> None:
        self.tester = TwsTester(Scripted(script), timeMode="ProcessingTime")

    def epoch(self, rows: dict[str, list[int]], now_ms: int) -> list[tuple[Any, ...]]:
        self.tester._currentProcessingTimeMs = now_ms
        output = []
        for key in sorted(rows):
            output += self.tester.test(key, [Row(key=key, value=value) for value in rows[key]])
        return [tuple(row) for row in [*output, *self.tester._handleExpiredTimers()]]


@settings(max_examples=150)
@given(scripts, st.lists(epochs, min_size=1, max_size=6))
def test_output_and_state_are_those_of_pyspark_s_own_runner(
    script: list[list[Call]], plan: list[tuple[dict[str, list[int]], int, str]]
) -> None:
    running, expected, now_ms = TimedEpochs(Scripted(script)), InTester(script), 0
    for rows, passed_ms, what in plan:
        now_ms += passed_ms
        table = [(key, value) for key in sorted(rows) for value in rows[key]]
        if what.startswith("restarts"):
            running.restart(from_snapshot="snapshot" in what)
        if what == "fails first" and table:
            spec = running.spec
            running.spec = TimedEpochs(Scripted(script, breaks_at=len(table) - 1)).spec
            with pytest.raises(BrokenOffError):
                running.run(table, now_ms)
            running.backend.rollback()
            running.spec = spec
        # PySpark's runner fires by key, and not by time.
        assert sorted(running.epoch(table, now_ms)) == sorted(expected.epoch(rows, now_ms))
    assert state_of(running) == state_in(expected.tester)


def state_of(running: TimedEpochs) -> dict[str, Any]:
    states: dict[str, Any] = {
        state.name: running.backend.state(state) for state in running.spec.states
    }
    contents: dict[str, Any] = {}
    for key in KEYS:
        running.backend.set_current_key((key,), running.key_group(key))
        contents[key] = (
            states["value"].get(),
            list(states["list"].get()),
            sorted((tuple(k), tuple(v)) for k, v in states["map"].iterator()),
            states["$procTimers"].list(),
        )
    return contents


def state_in(tester: TwsTester) -> dict[str, Any]:
    contents: dict[str, Any] = {}
    for key in KEYS:
        tester.handle.setGroupingKey(key)
        contents[key] = (
            tester.peekValueState("value", key),
            tester.peekListState("list", key),
            sorted(tester.peekMapState("map", key).items()),
            sorted(tester.handle.listTimers()),
        )
    return contents
