"""MapState: a map of the current key, with the methods of PySpark's MapState.

User keys and values are checked, converted and handed out as the value of a ValueState is. To set
or remove one costs the same however large the map is. The first change to a key's map in an epoch
also copies the map, and so does the first change after an iterator was begun.

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

from spark_state.keyed_state.collection_serializers import MapOfKey, MapSerializer
from spark_state.keyed_state.keyed_state_table import KeyedStateTable


class MapState:
    """A map per key; an empty map counts as no map. Raises what ValueState raises.

    Iterators give the entries as they are when the first one is taken, in the order in which user
    keys were first set; what is set or removed meanwhile does not change that.
    """

    __slots__ = ("_copy", "_serializer", "_table", "_to_key", "_to_value")

    def __init__(self, table: KeyedStateTable[MapOfKey], serializer: MapSerializer) -> None:
        self._table = table
        self._serializer = serializer
        self._to_key = serializer.keys.freeze
        self._to_value = serializer.value.to_state
        self._copy = serializer.value.copy

    def exists(self) -> bool:
        """Whether the current key has a map."""
        return self._table.get() is not None

    def getValue(self, key: tuple[Any, ...]) -> Any:
        """The value of a user key as a Row, None if it has none."""
        value = self._entries().get(self._to_key(key))
        return None if value is None else self._serializer.to_row(self._copy(value))

    def containsKey(self, key: tuple[Any, ...]) -> bool:
        """Whether the user key has a value."""
        return self._to_key(key) in self._entries()

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        """Set the value of a user key."""
        frozen, state = self._to_key(key), self._to_value(value)
        entries = self._table.own()
        if entries is None:
            self._table.put({frozen: state})
        else:
            entries[frozen] = state

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """The user keys, each with its value."""
        thaw, copy = self._serializer.keys.thaw, self._copy
        for key, value in self._entries_to_iterate().items():
            yield thaw(key), copy(value)

    def keys(self) -> Iterator[tuple[Any, ...]]:
        """The user keys."""
        yield from map(self._serializer.keys.thaw, self._entries_to_iterate())

    def values(self) -> Iterator[tuple[Any, ...]]:
        """The values."""
        yield from map(self._copy, self._entries_to_iterate().values())

    def removeKey(self, key: tuple[Any, ...]) -> None:
        """Remove a user key, if it is there; with the last one the map is gone."""
        frozen, entries = self._to_key(key), self._entries()
        if frozen not in entries:
            return
        if len(entries) == 1:
            self._table.remove()
        elif own := self._table.own():
            del own[frozen]

    def clear(self) -> None:
        """Remove the map of the current key, if any."""
        self._table.remove()

    def _entries(self) -> MapOfKey:
        entries = self._table.get()
        return {} if entries is None else entries

    def _entries_to_iterate(self) -> MapOfKey:
        # A dict cannot change while it is iterated, so the next change begins a copy.
        self._table.share()
        return self._entries()
