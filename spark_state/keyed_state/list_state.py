"""ListState: a list of the current key, with the methods of PySpark's ListState.

Elements are checked, converted and returned like the value of a ValueState. The time and the bytes
of an append depend on the appended elements only, however long the list is.

    class Tail(StatefulProcessor):
        def init(self, handle):
            self._events = handle.getListState("events", "at timestamp, what string")

        def handleInputRows(self, key, rows, timerValues):
            self._events.appendList([(row.at, row.what) for row in rows])
            yield Row(device=key[0], events=sum(1 for _ in self._events.get()))

        def close(self): ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from spark_state.keyed_state.element_serializers import ListSerializer, Value
from spark_state.keyed_state.keyed_tables import KeyedElementTable


class ListState:
    """A list per key. An empty list counts as no list. Raises the same errors as ValueState."""

    __slots__ = ("_element", "_table", "_to_values")

    def __init__(self, table: KeyedElementTable[int, Value], serializer: ListSerializer) -> None:
        self._table = table
        self._element = serializer.element
        self._to_values = serializer.to_values

    def exists(self) -> bool:
        """Return True if the current key has a list."""
        return self._table.exists()

    def get(self) -> Iterator[tuple[Any, ...]]:
        """Yield the elements that the list has at the first `next`; nothing if there is no list."""
        elements = (element for _, element in self._table.elements())
        yield from elements if self._element.immutable else map(self._element.copy, elements)

    def put(self, newState: Iterable[tuple[Any, ...]]) -> None:
        """Set the list of the current key. Without elements, remove the list."""
        elements = self._to_values(newState)
        self._table.clear()
        self._table.append(elements)

    def appendValue(self, newState: tuple[Any, ...]) -> None:
        """Append one element."""
        self._table.append((self._element.to_state(newState),))

    def appendList(self, newState: Iterable[tuple[Any, ...]]) -> None:
        """Append all elements. If an element does not fit the schema, no element is appended."""
        self._table.append(self._to_values(newState))

    def clear(self) -> None:
        """Remove the list of the current key, if any."""
        self._table.clear()
