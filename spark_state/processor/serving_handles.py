"""Handles for `init` in every epoch: a handle returns states by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from spark_state.errors import ConfigurationError
from spark_state.operator_state.handed_out_states import OperatorStates
from spark_state.operator_state.meta_info import OperatorStateMode
from spark_state.processor.condition_errors import deleted_state, timer_without_time
from spark_state.processor.handles import (
    DeclaringHandle,
    RefusedState,
    refused_timers,
)
from spark_state.state_descriptor import StateDescriptor, StateKind

WITHOUT_TIME = refused_timers(timer_without_time)


def serving_handle(
    states: Sequence[StateDescriptor],
    opened: Callable[[StateDescriptor], Any],
    operator_states: OperatorStates,
    drop: Callable[[str], None],
    handle_type: type[DeclaringHandle],
) -> DeclaringHandle:
    """Return a handle for these states. `opened`: opens a state, or the timers, and returns the
    object that the processor's API gives to processors. `drop`: deletes a state. `handle_type`:
    class of the handle."""
    by_name = {state.name: (state.kind, opened(state)) for state in states}
    timers = [state for kind, state in by_name.values() if kind == "timers"]
    dropped: set[str] = set()

    def changed(what: str) -> ConfigurationError:
        declared = ", ".join(sorted(by_name)) or "none"
        return ConfigurationError(
            f"{what} when the query was planned (declared: {declared}); init must declare and "
            "delete the same states always"
        )

    def unrecorded(kind: StateKind, name: str, operation: str) -> ConfigurationError:
        if name in dropped:
            return deleted_state(kind, name, operation)
        return changed(f"{kind} state {name!r} was not declared")

    def look_up(kind: StateKind, name: str, _schemas: tuple[Any, ...], _ttl_ms: int | None) -> Any:
        if name not in by_name:
            return RefusedState(partial(unrecorded, kind, name))
        if by_name[name][0] != kind:
            raise changed(f"state {name!r} was no {kind} state")
        return by_name[name][1]

    def drop_state(name: str) -> None:
        if name in by_name:
            raise changed(f"state {name!r} was not deleted")
        dropped.add(name)
        drop(name)

    def look_up_operator_state(
        mode: OperatorStateMode, name: str, _schemas: tuple[Any, ...]
    ) -> Any:
        return operator_states.look_up(mode, name)

    of_handle = timers[0] if timers else WITHOUT_TIME
    return handle_type(look_up, of_handle, drop_state, look_up_operator_state)
