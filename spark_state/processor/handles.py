"""The handles that `StatefulProcessor.init` gets: a recording one, and a serving one.

Schemas given as DDL text need a Spark session, which the host does not have. So `init` runs once on
the driver with a handle that records every state and refuses what is not supported; the parsed
descriptors travel to the host, where `init` runs again and each state is looked up by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from spark_state.errors import ConfigurationError, UnsupportedOperationError
from spark_state.keyed_state.value_state import ValueState
from spark_state.state_descriptor import StateDescriptor

Describe = Callable[[str, Any], StateDescriptor]
State = TypeVar("State")


def _refuse(operation: str, instead: str) -> NoReturn:
    raise UnsupportedOperationError(f"{operation} is not supported: {instead}")


class ProcessorHandle:
    """PySpark's StatefulProcessorHandle for time mode "None" and value states.

    `value_state(name, schema)` decides what `getValueState` does: record or look up.
    """

    def __init__(self, value_state: Callable[[str, Any], Any]) -> None:
        self._value_state = value_state

    def getValueState(
        self,
        stateName: str,
        schema: Any,
        ttlDurationMs: int | None = None,
    ) -> Any:
        """The value state of this name. Call it in `init` only."""
        if ttlDurationMs is not None:
            _refuse(
                f"a time to live ({ttlDurationMs} ms) of state {stateName!r}",
                'it needs a time mode, and time mode "None" has none; leave ttlDurationMs out',
            )
        return self._value_state(stateName, schema)

    def getListState(self, stateName: str, *_: Any, **__: Any) -> NoReturn:
        """Refused: list states are not supported."""
        _refuse(f"list state {stateName!r}", "keep the list in an array field of a ValueState")

    def getMapState(self, stateName: str, *_: Any, **__: Any) -> NoReturn:
        """Refused: map states are not supported."""
        _refuse(f"map state {stateName!r}", "keep the map in a map field of a ValueState")

    def registerTimer(self, expiryTimestampMs: int) -> NoReturn:
        """Refused: time mode "None" has no timers, as in Spark."""
        _refuse(f"timer {expiryTimestampMs}", 'time mode "None" has no timers')

    def deleteTimer(self, expiryTimestampMs: int) -> NoReturn:
        """Refused: time mode "None" has no timers, as in Spark."""
        _refuse(f"deleting timer {expiryTimestampMs}", 'time mode "None" has no timers')

    def listTimers(self) -> Iterator[int]:
        """Refused: time mode "None" has no timers, as in Spark."""
        _refuse("listing timers", 'time mode "None" has no timers')

    def deleteIfExists(self, stateName: str) -> NoReturn:
        """Refused: states are dropped with their store."""
        _refuse(
            f"deleting state {stateName!r}",
            "clear it key by key, or start with another operator name",
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


def record_states(processor: Any, describe: Describe) -> tuple[StateDescriptor, ...]:
    """Run `processor.init` and `close`, and return the states it declared.

    `describe(name, schema)` parses a schema. Raises ConfigurationError for a repeated name and
    UnsupportedOperationError for anything that this release does not run.
    """
    states: dict[str, StateDescriptor] = {}

    def record(name: Any, schema: Any) -> _UnusableState:
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"a state's name is a non-empty str, not {name!r}")
        if name in states:
            raise ConfigurationError(f"state {name!r} is declared twice; give each its own name")
        states[name] = describe(name, schema)
        return _UnusableState(name)

    processor.init(ProcessorHandle(record))
    processor.close()
    return tuple(states.values())


def serving_handle(states: Mapping[str, ValueState]) -> ProcessorHandle:
    """A handle that hands out these states by name."""

    def look_up(name: str, _schema: Any) -> ValueState:
        if name not in states:
            raise ConfigurationError(
                f"state {name!r} was not declared when the query was planned (declared: "
                f"{', '.join(sorted(states)) or 'none'}); init must declare the same states always"
            )
        return states[name]

    return ProcessorHandle(look_up)
