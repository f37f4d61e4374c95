"""Handle for `ArrowStatefulProcessor.init`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from spark_state.keyed_state.keyed_state_backend import KeyedStateBackend
from spark_state.operator_state.handed_out_states import OperatorStates
from spark_state.processor.arrow.keyed_batch import Keys
from spark_state.processor.arrow.states import ArrowState, ArrowTimers, ForManyKeys, arrow_state
from spark_state.processor.handles import DeclaringHandle, NoTimers
from spark_state.processor.serving_handles import serving_handle
from spark_state.state_descriptor import StateDescriptor


class ArrowProcessorHandle(DeclaringHandle, ForManyKeys):
    """Handle for states of many keys, see `states`, and for operator state, as in the other
    APIs."""

    calls_of_rows: ClassVar[Mapping[str, str]] = {
        "registerTimer": "registerTimers(keys, timesMs)",
        "deleteTimer": "deleteTimers(keys, timesMs)",
    }
    _timers: ArrowTimers | NoTimers

    def registerTimers(self, keys: Keys, timesMs: Any) -> None:
        """Register a timer for each key. `timesMs`: whole numbers in ms since 1970, one for each
        key.

        Raises StateValueError for other times.
        """
        self._timers.register(keys, timesMs)

    def deleteTimers(self, keys: Keys, timesMs: Any) -> None:
        """Delete a timer of each key, if the timer exists. Raises StateValueError for invalid
        times."""
        self._timers.delete(keys, timesMs)

    def listTimers(self, keys: Keys) -> pa.ListArray[Any]:
        """Return the timers of each key, earliest first, int64 in ms since 1970."""
        return self._timers.list(keys)


def serve_in_bulk(
    backend: KeyedStateBackend[Any],
    states: Sequence[StateDescriptor],
    operator_states: OperatorStates,
    drop: Callable[[str], None],
) -> DeclaringHandle:
    """Return the handle of an ArrowStatefulProcessor, for states of many keys. See Serve."""

    def opened(state: StateDescriptor) -> ArrowState | ArrowTimers:
        return arrow_state(backend.open_table(state), backend.set_current_key)

    return serving_handle(states, opened, operator_states, drop, ArrowProcessorHandle)
