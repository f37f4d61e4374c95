"""Random processors: a script of calls of states and timers, and a processor that follows a script.

    script   lines, each a few calls            random_script
    line     chosen by a row's value, or by the time of a timer
    call     name and arguments, as in CALLS; an argument may be another call

Every row and every timer emits the results of its line. So two runs are equal if their outputs are
equal.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pyspark import cloudpickle
from pyspark.sql import Row

from tests.support.processors.processors import Processor

OUTPUT = "key string, number bigint, seen string"


def processing_time(timer_values: Any) -> int:
    """The batch's time."""
    now_ms: int = timer_values.getCurrentProcessingTimeInMs()
    return now_ms


def watermark(timer_values: Any) -> int:
    """The watermark."""
    now_ms: int = timer_values.getCurrentWatermarkInMs()
    return now_ms


def year_2100(timer_values: Any) -> int:
    """A time that no test reaches."""
    return 4_102_444_800_000


ScriptedCall = tuple[Any, ...]
Script = Sequence[Sequence[ScriptedCall]]
StateKind = Literal["value", "list", "map"]
Output = tuple[Any, ...]


class ScriptedState(NamedTuple):
    """A state of a processor."""

    name: str
    kind: StateKind
    ttl_ms: int | None = None


STATES = (
    ScriptedState("value", "value"),
    ScriptedState("list", "list"),
    ScriptedState("map", "map"),
)

# The arguments of each call: a state of a kind, or the result of an `_Author` method of this name.
WRITES: Mapping[str, tuple[str, ...]] = {
    "update": ("value", "number"),
    "clear": ("any",),
    "put": ("list", "numbers"),
    "append": ("list", "number"),
    "append_all": ("list", "numbers"),
    "set": ("map", "user_key", "number"),
    "remove": ("map", "user_key"),
    "register": ("delay",),
    "unregister": ("delay",),
    "register_at": ("moment",),
    "unregister_at": ("moment",),
}
READS: Mapping[str, tuple[str, ...]] = {
    "look_at_value": ("value",),
    "look_at_list": ("list",),
    "look_at_map": ("map",),
    "look_up": ("map", "user_key"),
    "list_timers": (),
}
# Iterations with a write in the middle.
ITERATIONS: Mapping[str, tuple[str, ...]] = {
    "during_list": ("list", "write"),
    "during_map": ("map", "write"),
    "during_keys": ("map", "write"),
    "during_values": ("map", "write"),
    "during_timers": ("write",),
    "raise_all": ("map", "number"),
    "remove_all": ("map",),
    "unregister_all": (),
}
CALLS = {**WRITES, **READS, **ITERATIONS}


class BrokenOffError(Exception):
    """An error that the processor raises on purpose."""


@dataclass(frozen=True)
class _Author:
    """Random arguments of calls."""

    chance: random.Random
    states: Sequence[ScriptedState]

    def call(self, calls: Mapping[str, tuple[str, ...]]) -> ScriptedCall:
        name = self.chance.choice(list(calls))
        return name, *(self.argument(kind) for kind in calls[name])

    def argument(self, kind: str) -> Any:
        if kind in ("any", "value", "list", "map"):
            return self.chance.choice([s for s in self.states if kind in ("any", s.kind)])
        return getattr(self, kind)()

    def number(self) -> int | None:
        return self.chance.choice([0, 1, 2, 3, None])

    def numbers(self) -> list[int | None]:
        # Spark refuses to put or append an empty list.
        return [self.number() for _ in range(self.chance.randint(1, 3))]

    def user_key(self) -> int:
        return self.chance.randint(0, 3)

    def delay(self) -> int:
        return self.chance.randint(-5, 60)

    def moment(self) -> int:
        return self.chance.randint(0, 60)

    def write(self) -> ScriptedCall:
        return self.call(WRITES)


def random_script(
    chance: random.Random,
    lines: int,
    longest: int = 4,
    states: Sequence[ScriptedState] = STATES,
) -> Script:
    """A script of `lines` lines, with up to `longest` calls each."""
    author = _Author(chance, states)
    return [[author.call(CALLS) for _ in range(chance.randint(0, longest))] for _ in range(lines)]


class Scripted(Processor):
    """Processor that follows a script. A row runs the line at its value modulo the script's length;
    a timer runs the line at its time modulo the script's length. Each name in CALLS has a method of
    the same name with a leading underscore.

    `clock`: the time that delays are added to. `states`: the declared states. `deleted`: the
    deleted states. A call of a state that is not declared does nothing. `breaks_at`: (key, value)
    of a row, or (key, time) of a timer, that raises BrokenOffError.
    """

    def __init__(
        self,
        script: Script,
        clock: Callable[[Any], int],
        states: Sequence[ScriptedState] = STATES,
        deleted: Sequence[str] = (),
        breaks_at: tuple[str | None, int] | None = None,
    ) -> None:
        self._script = script
        self._clock = clock
        self._declared = states
        self._deleted = deleted
        self._breaks_at = breaks_at

    def init(self, handle: Any) -> None:
        self._handle = handle
        for name in self._deleted:
            handle.deleteIfExists(name)
        self._states = {state: self._open(state) for state in self._declared}

    def _open(self, state: ScriptedState) -> Any:
        ttl = {} if state.ttl_ms is None else {"ttlDurationMs": state.ttl_ms}
        if state.kind == "value":
            return self._handle.getValueState(state.name, "n bigint", **ttl)
        if state.kind == "list":
            return self._handle.getListState(state.name, "n bigint", **ttl)
        return self._handle.getMapState(state.name, "k bigint", "n bigint", **ttl)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self._now_ms = self._clock(timerValues)
        for row in rows:
            yield self._follow(key[0], row.value)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        self._now_ms = self._clock(timerValues)
        yield self._follow(key[0], expiredTimerInfo.getExpiryTimeInMs())

    def _follow(self, key: str | None, number: int) -> Row:
        if self._breaks_at == (key, number):
            raise BrokenOffError(f"at {number} of key {key!r}")
        line = self._script[number % len(self._script)]
        seen = [self._now_ms, *((call[0], self.run(call)) for call in line)]
        return Row(key=key, number=number, seen=repr(seen))

    def run(self, call: ScriptedCall) -> Any:
        """Run a call and return the result."""
        name, *arguments = call
        if arguments and isinstance(arguments[0], ScriptedState):
            if arguments[0] not in self._states:
                return "not declared"
            arguments[0] = self._states[arguments[0]]
        return getattr(self, f"_{name}")(*arguments)

    def _update(self, state: Any, number: int | None) -> None:
        state.update((number,))

    def _clear(self, state: Any) -> None:
        state.clear()

    def _put(self, state: Any, numbers: list[int | None]) -> None:
        state.put([(number,) for number in numbers])

    def _append(self, state: Any, number: int | None) -> None:
        state.appendValue((number,))

    def _append_all(self, state: Any, numbers: list[int | None]) -> None:
        state.appendList([(number,) for number in numbers])

    def _set(self, state: Any, user_key: int, number: int | None) -> None:
        state.updateValue((user_key,), (number,))

    def _remove(self, state: Any, user_key: int) -> None:
        state.removeKey((user_key,))

    def _look_up(self, state: Any, user_key: int) -> Any:
        value = state.getValue((user_key,))
        return state.containsKey((user_key,)), value and tuple(value)

    def _look_at_value(self, state: Any) -> Any:
        value = state.get()
        return state.exists(), value and tuple(value)

    def _look_at_list(self, state: Any) -> Any:
        return state.exists(), [tuple(item) for item in state.get()]

    def _look_at_map(self, state: Any) -> Any:
        # Spark gives the entries in any order.
        entries = sorted((tuple(k), tuple(v)) for k, v in state.iterator())
        keys = sorted(map(tuple, state.keys()))
        values = sorted(map(tuple, state.values()), key=repr)
        # An empty map exists in PySpark's runner, and does not exist in Spark.
        return state.exists() if entries else None, entries, keys, values

    def _register(self, delay: int) -> None:
        self._register_at(self._now_ms + delay)

    def _unregister(self, delay: int) -> None:
        self._handle.deleteTimer(self._now_ms + delay)

    def _register_at(self, moment: int) -> None:
        self._handle.registerTimer(moment)

    def _unregister_at(self, moment: int) -> None:
        self._handle.deleteTimer(moment)

    def _list_timers(self) -> Any:
        return sorted(self._handle.listTimers())

    def _during(self, elements: Iterator[Any], call: ScriptedCall) -> list[Any]:
        met = []
        for element in elements:
            if not met:
                self.run(call)
            met.append(element)
        return met

    def _during_list(self, state: Any, call: ScriptedCall) -> Any:
        return self._during(map(tuple, state.get()), call)

    def _during_map(self, state: Any, call: ScriptedCall) -> Any:
        entries = ((tuple(k), tuple(v)) for k, v in state.iterator())
        return sorted(self._during(entries, call))

    def _during_keys(self, state: Any, call: ScriptedCall) -> Any:
        return sorted(self._during(map(tuple, state.keys()), call))

    def _during_values(self, state: Any, call: ScriptedCall) -> Any:
        return sorted(self._during(map(tuple, state.values()), call), key=repr)

    def _during_timers(self, call: ScriptedCall) -> Any:
        return sorted(self._during(self._handle.listTimers(), call))

    def _raise_all(self, state: Any, number: int | None) -> None:
        for user_key, (value,) in state.iterator():
            state.updateValue(tuple(user_key), (None if number is None else (value or 0) + number,))

    def _remove_all(self, state: Any) -> None:
        for user_key, _ in state.iterator():
            state.removeKey(tuple(user_key))

    def _unregister_all(self) -> None:
        for moment in self._handle.listTimers():
            self._handle.deleteTimer(moment)


class ScriptedInOrder(Scripted):
    """Scripted with the rows of a key sorted by value. A shuffle gives rows in any order."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        in_order = sorted(rows, key=lambda row: row.value)
        return super().handleInputRows(key, iter(in_order), timerValues)


cloudpickle.register_pickle_by_value(sys.modules[__name__])
