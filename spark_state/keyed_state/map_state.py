"""MapState: a map of the current key, with the methods of PySpark's MapState.

User keys and values are checked, converted and returned like the value of a ValueState. The time
and the bytes of setting or removing an entry do not depend on the size of the map. Iterators follow
the order of the user keys: compared field by field, null first, NaN last.

    class Visits(StatefulProcessor):
        def init(self, handle):
            self._visits = handle.getMapState("visits", "page string", "times long")

        def handleInputRows(self, key, rows, timerValues):
            for row in rows:
                before = self._visits.getValue((row.page,))
                self._visits.updateValue((row.page,), (before.times + 1 if before else 1,))
            yield Row(user=key[0], pages=sum(1 for _ in self._visits.keys()))

        def close(self): ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spark_state.keyed_state.element_serializers import MapSerializer, Value
from spark_state.keyed_state.keyed_tables import KeyedElementTable


class MapState:
    """A map per key. An empty map counts as no map. Raises the same errors as ValueState.

    An iterator yields the entries that the map has at the first `next`. Later changes do not affect
    the iterator.
    """

    __slots__ = ("_copy", "_serializer", "_table", "_to_key", "_to_value")

    def __init__(self, table: KeyedElementTable[Value, Value], serializer: MapSerializer) -> None:
        self._table = table
        self._serializer = serializer
        self._to_key = serializer.keys.freeze
        self._to_value = serializer.value.to_state
        self._copy = serializer.value.copy

    def exists(self) -> bool:
        """Return True if the current key has a map."""
        return self._table.exists()

    def getValue(self, key: tuple[Any, ...]) -> Any:
        """Return the value of a user key as a Row, None if the user key has no value."""
        value = self._table.get(self._to_key(key))
        return None if value is None else self._serializer.to_row(self._copy(value))

    def containsKey(self, key: tuple[Any, ...]) -> bool:
        """Return True if the user key has a value."""
        return self._table.get(self._to_key(key)) is not None

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        """Set the value of a user key."""
        self._table.put(self._to_key(key), self._to_value(value))

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Yield pairs of a user key and its value."""
        thaw, copy = self._serializer.keys.thaw, self._copy
        for key, value in self._table.elements():
            yield thaw(key), copy(value)

    def keys(self) -> Iterator[tuple[Any, ...]]:
        """Yield the user keys."""
        for key, _ in self._table.elements():
            yield self._serializer.keys.thaw(key)

    def values(self) -> Iterator[tuple[Any, ...]]:
        """Yield the values, in the order of their user keys."""
        for _, value in self._table.elements():
            yield self._copy(value)

    def removeKey(self, key: tuple[Any, ...]) -> None:
        """Remove a user key and its value, if present. After the last user key is removed, the
        current key has no map."""
        self._table.remove(self._to_key(key))

    def clear(self) -> None:
        """Remove the map of the current key, if any."""
        self._table.clear()
