"""Handle for `ArrowStatefulProcessor.init`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from spark_state.keyed_state.keyed_state_backend import KeyedStateBackend
from spark_state.processor.arrow.keyed_batch import Keys
from spark_state.processor.arrow.states import ArrowState, ArrowTimers, arrow_state
from spark_state.processor.handles import DeclaringHandle, RefusedState
from spark_state.state_descriptor import StateDescriptor


class ArrowProcessorHandle(DeclaringHandle):
    """Handle whose states and timers take many keys in one call, see `states`. Operator state works
    as in ProcessorHandle."""

    _timers: ArrowTimers | RefusedState

    @staticmethod
    def open_state(
        backend: KeyedStateBackend[Any], state: StateDescriptor
    ) -> ArrowState | ArrowTimers:
        """Open a state, or the timers, for many keys."""
        return arrow_state(backend.open_table(state), backend.set_current_key)

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
