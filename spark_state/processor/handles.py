"""Handles for `StatefulProcessor.init`: the recording handle, and the base of the serving handle.

Schemas in DDL text need a Spark session, and the host has none. So `init` runs once on the driver
with a handle that records every state and refuses unsupported calls. The parsed descriptors travel
to the host. There `init` runs again, and the handle looks up each state by name.

A refused call raises an error with Spark's condition, if Spark's own operator has a condition for
the refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from spark_state.errors import ConfigurationError, CowstateError, UnsupportedOperationError
from spark_state.keyed_state.keyed_state_backend import KeyedStateBackend
from spark_state.keyed_state.timers import Timers
from spark_state.operator_state.handed_out_states import OperatorStates
from spark_state.operator_state.meta_info import OperatorStateMetaInfo, OperatorStateMode
from spark_state.operator_state.operator_state_backend import OperatorStateBackend
from spark_state.processor.condition_errors import (
    operation_after_init,
    state_defined_twice,
    timer_in_init,
    ttl_in_time_mode,
    ttl_not_positive,
)
from spark_state.processor.rows import STATE_FORMS
from spark_state.processor.schemas import ParsedSchemas
from spark_state.state_descriptor import StateDescriptor, StateKind

Declare = Callable[[StateKind, str, tuple[Any, ...], int | None], Any]
DeclareOperatorState = Callable[[OperatorStateMode, str, tuple[Any, ...]], Any]

_RESERVED = "$"


class RefusedState:
    """Placeholder for a state, or for timers, that the processor may not use now. `error`: makes
    the error from the name of the operation."""

    def __init__(self, error: Callable[[str], CowstateError]) -> None:
        self._error = error

    def __getattr__(self, operation: str) -> NoReturn:
        raise self._error(operation)


def refused_timers(error: Callable[[str], CowstateError]) -> RefusedState:
    """Return timers that refuse every call. `error`: makes the error from Spark's name of the
    operation."""
    names = {"register": "register_timer", "delete": "delete_timer", "list": "list_timers"}
    return RefusedState(lambda operation: error(names[operation]))


_IN_INIT = refused_timers(timer_in_init)


class DeclaringHandle:
    """Base of the handles that `init` gets, with the methods that declare and delete states:
    PySpark's methods, and methods for operator state as in Flink.

    - `declare(kind, name, schemas, ttl_ms)`: records or looks up a state. A map state has two
      schemas, for the user key and for the value. All other states have one schema.
    - `timers`: Timers, or ArrowTimers in the Arrow API; RefusedState if timers cannot be used.
    - `drop(name)`: deletes a state.
    - `declare_operator_state(mode, name, schemas)`: as `declare`, for a state without a key.
    """

    def __init__(
        self,
        declare: Declare,
        timers: Any,
        drop: Callable[[str], None],
        declare_operator_state: DeclareOperatorState,
    ) -> None:
        self._declare = declare
        self._timers = timers
        self._drop = drop
        self._declare_operator_state = declare_operator_state

    @staticmethod
    def open_state(backend: KeyedStateBackend[Any], state: StateDescriptor) -> Any:
        """Open a state, or the timers, and return the object that the processor uses. In this class
        the object works on the current key."""
        return backend.state(state)

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> Any:
        """Return the value state of this name. Call in `init` only."""
        return self._declare("value", stateName, (schema,), ttlDurationMs)

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> Any:
        """Return the list state of this name. `schema`: schema of an element. Call in `init`
        only."""
        return self._declare("list", stateName, (schema,), ttlDurationMs)

    def getMapState(
        self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: int | None = None
    ) -> Any:
        """Return the map state of this name. Call in `init` only."""
        return self._declare("map", stateName, (userKeySchema, valueSchema), ttlDurationMs)

    def getListOperatorState(self, stateName: str, schema: Any) -> Any:
        """Return a list that belongs to this subtask. `schema`: schema of an item. If the
        parallelism changes, the items of all lists are dealt out to the new subtasks. Call in
        `init` only."""
        return self._declare_operator_state("split", stateName, (schema,))

    def getUnionOperatorState(self, stateName: str, schema: Any) -> Any:
        """Return a list that belongs to this subtask. `schema`: schema of an item. In the first
        epoch of a run the list has the items of all subtasks. In this epoch the processor must
        replace the items by the items of this subtask. Call in `init` only."""
        return self._declare_operator_state("union", stateName, (schema,))

    def getBroadcastState(self, stateName: str, keySchema: Any, valueSchema: Any) -> Any:
        """Return a map that is the same in all subtasks; `handleBroadcastRows` changes the map.
        Call in `init` only."""
        return self._declare_operator_state("broadcast", stateName, (keySchema, valueSchema))

    def deleteIfExists(self, stateName: str) -> None:
        """Delete a state with its content for all keys, if the state exists. Call in `init`
        only."""
        self._drop(stateName)

    def end_init(self) -> None:
        """End `init`: refuse declarations and deletions from now on. A declaration or a deletion is
        for all keys together, so none may happen while keys are handled."""

        def declare(kind: StateKind, _name: str, _schemas: Any, _ttl_ms: int | None) -> NoReturn:
            raise operation_after_init(f"get_{kind}_state")

        def declare_operator_state(_mode: OperatorStateMode, _name: str, _schemas: Any) -> NoReturn:
            raise operation_after_init("get_operator_state")

        def drop(_name: str) -> NoReturn:
            raise operation_after_init("delete_if_exists")

        self._declare, self._drop = declare, drop
        self._declare_operator_state = declare_operator_state


class ProcessorHandle(DeclaringHandle):
    """PySpark's StatefulProcessorHandle, with operator state."""

    _timers: Timers | RefusedState

    def registerTimer(self, expiryTimestampMs: int) -> None:
        """Register a timer of the current key, in ms since 1970. `handleExpiredTimer` is called in
        the first batch that reaches the time, which may be the current batch."""
        self._timers.register(_timestamp(expiryTimestampMs))

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        """Delete a timer of the current key, if the timer exists."""
        self._timers.delete(_timestamp(expiryTimestampMs))

    def listTimers(self) -> Iterator[int]:
        """Return the timers of the current key, earliest first."""
        return iter(self._timers.list())


def _timestamp(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise ConfigurationError(
            f"{given!r} is no timestamp of a timer: give whole milliseconds since 1970, an int"
        )
    return given


@dataclass(frozen=True, slots=True)
class DeclaredStates:
    """States that a processor declares. `keyed`: states of keys. `operator`: operator states.
    `deleted`: states of keys that `init` declares and then deletes."""

    keyed: tuple[StateDescriptor, ...]
    operator: tuple[OperatorStateMetaInfo, ...]
    deleted: tuple[StateDescriptor, ...] = ()


def record_states(
    processor: Any,
    parsed: ParsedSchemas,
    time_mode: str = "None",
    handle_type: type[DeclaringHandle] = ProcessorHandle,
) -> DeclaredStates:
    """Run `processor.init` and `close`, and return the declared states.

    `time_mode`: "None", "ProcessingTime" or "EventTime". `handle_type`: class of the handle for
    `init`. Operator states are empty during `init`. Raises ConfigurationError for a bad or repeated
    name and for a bad time to live, and UnsupportedOperationError for a call that is impossible in
    `init`.
    """
    states: dict[str, StateDescriptor] = {}
    operator_states: dict[str, OperatorStateMetaInfo] = {}
    empty = OperatorStates(OperatorStateBackend(STATE_FORMS), (), STATE_FORMS.make_row)
    dropped: set[str] = set()
    declared_and_dropped: set[str] = set()

    def check_name(name: Any) -> None:
        _check_form(name)
        if name in states or name in operator_states:
            raise state_defined_twice(name)

    def record(kind: StateKind, name: Any, schemas: tuple[Any, ...], ttl_ms: Any) -> RefusedState:
        check_name(name)
        _check_time_to_live(name, ttl_ms, time_mode)
        states[name] = replace(parsed.keyed(kind, name, schemas), ttl_ms=ttl_ms)
        return RefusedState(
            lambda operation: UnsupportedOperationError(
                f"init used state {name!r} ({operation}); there is no current key in init: use "
                "states in handleInputRows"
            )
        )

    def record_operator_state(mode: OperatorStateMode, name: Any, schemas: tuple[Any, ...]) -> Any:
        check_name(name)
        operator_states[name] = parsed.operator(mode, name, schemas)
        return empty.declare(operator_states[name])

    def drop(name: Any) -> None:
        _check_form(name)
        if name in operator_states:
            raise ConfigurationError(
                f"init declares operator state {name!r} and then deletes it: leave one of the two "
                "out"
            )
        (declared_and_dropped if name in states else dropped).add(name)

    processor.init(handle_type(record, _IN_INIT, drop, record_operator_state))
    processor.close()
    both = sorted(dropped & (states.keys() | operator_states.keys()))
    if both:
        raise ConfigurationError(
            f"init deletes state {both[0]!r} and then declares it, so it would be empty in every "
            "batch: leave one of the two out"
        )
    deleted = tuple(states.pop(name) for name in sorted(declared_and_dropped))
    return DeclaredStates(tuple(states.values()), tuple(operator_states.values()), deleted)


def _check_form(name: Any) -> None:
    if not isinstance(name, str) or not name or name.startswith(_RESERVED):
        raise ConfigurationError(
            f"a state's name is a non-empty str that does not begin with {_RESERVED}, not {name!r}"
        )


def _check_time_to_live(name: str, ttl_ms: Any, time_mode: str) -> None:
    if ttl_ms is None:
        return
    if isinstance(ttl_ms, bool) or not isinstance(ttl_ms, int) or ttl_ms <= 0:
        raise ttl_not_positive(name, ttl_ms)
    if time_mode != "ProcessingTime":
        raise ttl_in_time_mode(name, time_mode)
