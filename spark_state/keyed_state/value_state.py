"""ValueState: one value of the current key, with the methods of PySpark's ValueState.

`update` checks a value and converts the value to canonical form. `get` returns a copy, as in Spark:
a caller that changes the copy does not change the state.
"""

from __future__ import annotations

from typing import Any

from spark_state.keyed_state.element_serializers import Value
from spark_state.keyed_state.keyed_tables import KeyedStateTable
from spark_state.serializers import StructSerializer


class ValueState:
    """A single value per key. The methods work on the current key."""

    __slots__ = ("_copy", "_get", "_put", "_table", "_to_state")

    def __init__(self, table: KeyedStateTable[Value], serializer: StructSerializer) -> None:
        self._table = table
        self._get = table.get
        self._put = table.put
        self._to_state = serializer.to_state
        self._copy = None if serializer.immutable else serializer.copy

    def exists(self) -> bool:
        """Return True if the current key has a value."""
        return self._get() is not None

    def get(self) -> tuple[Any, ...] | None:
        """Return the value of the current key as a tuple, None if there is no value."""
        state = self._get()
        if state is None or self._copy is None:
            return state
        return self._copy(state)

    def update(self, newValue: tuple[Any, ...]) -> None:
        """Set the value of the current key.

        Raises StateValueError naming state, field and value when the value does not fit the schema.
        """
        self._put(self._to_state(newValue))

    def clear(self) -> None:
        """Remove the value of the current key, if any."""
        self._table.remove()
