"""The handle that `ArrowStatefulProcessor.init` gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa

from spark_state.processor.arrow.keyed_batch import Keys
from spark_state.processor.handles import Declare, DeclareOperatorState, DeclaringHandle


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
