"""The handle that `ArrowStatefulProcessor.init` gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pyarrow as pa

from spark_state.keyed_state.keyed_state_backend import KeyedStateBackend
from spark_state.operator_state.handed_out_states import OperatorStates
from spark_state.processor.arrow.keyed_batch import Keys
from spark_state.processor.arrow.states import ArrowTimers, arrow_state
from spark_state.processor.handles import Declare, DeclareOperatorState, DeclaringHandle
from spark_state.processor.serving_handles import WITHOUT_TIME, ServedStates, serving_handle
from spark_state.state_descriptor import StateDescriptor


class TimersOfKeys(Protocol):
    """The timers of keys. `states.ArrowTimers` is one."""

    def register(self, keys: Keys, times_ms: Any) -> None: ...

    def delete(self, keys: Keys, times_ms: Any) -> None: ...

    def list(self, keys: Keys) -> pa.ListArray[Any]: ...


class ArrowProcessorHandle(DeclaringHandle):
    """States of many keys at once, see `states`, and operator state as in the other APIs."""

    def __init__(
        self,
        declare: Declare,
        timers: TimersOfKeys,
        drop: Callable[[str], None],
        declare_operator_state: DeclareOperatorState,
    ) -> None:
        super().__init__(declare, drop, declare_operator_state)
        self._timers = timers

    def registerTimers(self, keys: Keys, timesMs: Any) -> None:
        """Register a timer for each key: `timesMs`, whole numbers in ms since 1970, one a key.

        Raises StateValueError for other times.
        """
        self._timers.register(keys, timesMs)

    def deleteTimers(self, keys: Keys, timesMs: Any) -> None:
        """Delete a timer of each key, if it is there. Raises StateValueError for other times."""
        self._timers.delete(keys, timesMs)

    def listTimers(self, keys: Keys) -> pa.ListArray[Any]:
        """The timers of each key, the earliest first, int64 in ms since 1970."""
        return self._timers.list(keys)


def serve_in_bulk(
    backend: KeyedStateBackend[Any],
    states: Sequence[StateDescriptor],
    operator_states: OperatorStates,
    drop: Callable[[str], None],
) -> DeclaringHandle:
    """The handle of an ArrowStatefulProcessor: states of many keys. See Serve."""
    set_key = backend.set_current_key
    opened = [(state.name, backend.open_table(state)) for state in states]
    timers = [ArrowTimers(table.table, set_key) for _, table in opened if table.kind == "timers"]
    of_keys = {
        name: (table.kind, arrow_state(table, set_key))
        for name, table in opened
        if table.kind != "timers"
    }
    served = ServedStates(of_keys, timers[0] if timers else WITHOUT_TIME, operator_states, drop)
    return serving_handle(served, ArrowProcessorHandle)
