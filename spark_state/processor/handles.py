"""The handles that `StatefulProcessor.init` gets: a recording one, and a serving one.

Schemas given as DDL text need a Spark session, which the host does not have. So `init` runs once on
the driver with a handle that records every state and refuses what is not supported; the parsed
descriptors travel to the host, where `init` runs again and each state is looked up by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from spark_state.errors import ConfigurationError, UnsupportedOperationError
from spark_state.keyed_state.list_state import ListState
from spark_state.keyed_state.map_state import MapState
from spark_state.keyed_state.value_state import ValueState
from spark_state.state_descriptor import StateDescriptor, StateKind

NO_TIME = "this release has no timers and no time to live, in whatever time mode"
_INSTEAD_OF_TIMERS = (
    f"{NO_TIME}. Keep a time in the state and look at it when the key's next rows come; what must "
    "happen without rows needs Spark's own transformWithState"
)

Declare = Callable[[StateKind, str, tuple[Any, ...]], Any]

_CLASSES = {"value": ValueState, "list": ListState, "map": MapState}


def _refuse(operation: str, instead: str) -> NoReturn:
    raise UnsupportedOperationError(f"{operation} is not supported: {instead}")


class ProcessorHandle:
    """PySpark's StatefulProcessorHandle for time mode "None".

    `declare(kind, name, schemas)` decides what declaring a state does: record or look up. A map
    state has two schemas, that of the user key and that of the value; others have one.
    """

    def __init__(self, declare: Declare) -> None:
        self._declare = declare

    def getValueState(
        self,
        stateName: str,
        schema: Any,
        ttlDurationMs: int | None = None,
    ) -> Any:
        """The value state of this name. Call it in `init` only."""
        _refuse_time_to_live(stateName, ttlDurationMs)
        return self._declare("value", stateName, (schema,))

    def getListState(
        self,
        stateName: str,
        schema: Any,
        ttlDurationMs: int | None = None,
    ) -> Any:
        """The list state of this name, `schema` that of an element. Call it in `init` only."""
        _refuse_time_to_live(stateName, ttlDurationMs)
        return self._declare("list", stateName, (schema,))

    def getMapState(
        self,
        stateName: str,
        userKeySchema: Any,
        valueSchema: Any,
        ttlDurationMs: int | None = None,
    ) -> Any:
        """The map state of this name. Call it in `init` only."""
        _refuse_time_to_live(stateName, ttlDurationMs)
        return self._declare("map", stateName, (userKeySchema, valueSchema))

    def registerTimer(self, expiryTimestampMs: int) -> NoReturn:
        """Refused: this release has no timers."""
        _refuse(f"timer {expiryTimestampMs}", _INSTEAD_OF_TIMERS)

    def deleteTimer(self, expiryTimestampMs: int) -> NoReturn:
        """Refused: this release has no timers."""
        _refuse(f"deleting timer {expiryTimestampMs}", _INSTEAD_OF_TIMERS)

    def listTimers(self) -> Iterator[int]:
        """Refused: this release has no timers."""
        _refuse("listing timers", _INSTEAD_OF_TIMERS)

    def deleteIfExists(self, stateName: str) -> NoReturn:
        """Refused: states are dropped with their store."""
        _refuse(
            f"deleting state {stateName!r}",
            "clear it key by key, or start with another operator name",
        )


def _refuse_time_to_live(state_name: str, duration_ms: int | None) -> None:
    if duration_ms is not None:
        _refuse(
            f"a time to live ({duration_ms} ms) of state {state_name!r}",
            f"{NO_TIME}. Leave ttlDurationMs out; to forget what is old, keep a time in the state, "
            "and clear it when the key's next rows come",
        )


class _UnusableState:
    """Stands for a state on the driver, where `init` may create states but not use them."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, operation: str) -> NoReturn:
        raise UnsupportedOperationError(
            f"init used state {self._name!r} ({operation}); there is no current key in init: "
            "use states in handleInputRows"
        )


def record_states(
    processor: Any, describe: Callable[[StateKind, str, tuple[Any, ...]], StateDescriptor]
) -> tuple[StateDescriptor, ...]:
    """Run `processor.init` and `close`, and return the states it declared.

    `describe(kind, name, schemas)` parses schemas. Raises ConfigurationError for a repeated name,
    and UnsupportedOperationError for anything that this release does not run.
    """
    states: dict[str, StateDescriptor] = {}

    def record(kind: StateKind, name: Any, schemas: tuple[Any, ...]) -> _UnusableState:
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"a state's name is a non-empty str, not {name!r}")
        if name in states:
            raise ConfigurationError(f"state {name!r} is declared twice; give each its own name")
        states[name] = describe(kind, name, schemas)
        return _UnusableState(name)

    processor.init(ProcessorHandle(record))
    processor.close()
    return tuple(states.values())


def serving_handle(states: Mapping[str, ValueState | ListState | MapState]) -> ProcessorHandle:
    """A handle that hands out these states by name."""

    def look_up(
        kind: StateKind, name: str, _schemas: tuple[Any, ...]
    ) -> ValueState | ListState | MapState:
        if not isinstance(states.get(name), _CLASSES[kind]):
            raise ConfigurationError(
                f"{kind} state {name!r} was not declared when the query was planned (declared: "
                f"{', '.join(sorted(states)) or 'none'}); init must declare the same states always"
            )
        return states[name]

    return ProcessorHandle(look_up)
