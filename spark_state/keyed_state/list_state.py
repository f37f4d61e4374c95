"""ListState: a list of the current key, with the methods of PySpark's ListState.

Elements are checked, converted and handed out as the value of a ValueState is. An append costs as
much as it appends. The first append to a key in an epoch also copies its list.

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
from itertools import islice
from typing import Any

from spark_state.keyed_state.collection_serializers import ListOfKey, ListSerializer
from spark_state.keyed_state.keyed_state_table import KeyedStateTable


class ListState:
    """A list per key; an empty list counts as no list. Raises what ValueState raises."""

    __slots__ = ("_element", "_table", "_to_list")

    def __init__(self, table: KeyedStateTable[ListOfKey], serializer: ListSerializer) -> None:
        self._table = table
        self._element = serializer.element
        self._to_list = serializer.to_state

    def exists(self) -> bool:
        """Whether the current key has a list."""
        return self._table.get() is not None

    def get(self) -> Iterator[tuple[Any, ...]]:
        """The elements, as they are when the first one is taken; none if there is no list."""
        state = self._table.get()
        if state is not None:
            # What is appended while the caller iterates is appended to this list.
            elements = islice(state, len(state))
            copy = self._element.copy
            yield from elements if self._element.immutable else map(copy, elements)

    def put(self, newState: Iterable[tuple[Any, ...]]) -> None:
        """Set the list of the current key; without elements, remove it."""
        if state := self._to_list(newState):
            self._table.put(state)
        else:
            self._table.remove()

    def appendValue(self, newState: tuple[Any, ...]) -> None:
        """Append one element."""
        element = self._element.to_state(newState)
        state = self._table.own()
        if state is None:
            self._table.put([element])
        else:
            state.append(element)

    def appendList(self, newState: Iterable[tuple[Any, ...]]) -> None:
        """Append all elements, or none if one of them does not fit."""
        elements = self._to_list(newState)
        state = self._table.own() if elements else None
        if state is not None:
            state.extend(elements)
        elif elements:
            self._table.put(elements)

    def clear(self) -> None:
        """Remove the list of the current key, if any."""
        self._table.remove()
