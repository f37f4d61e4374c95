"""States of many keys. A call takes many keys; arguments and results are in the order of the keys.

A value of a state is a row of a struct array; see `columns` for the accepted arguments. A refused
call changes nothing. Expiry, files and reads work as with PySpark's states, because both kinds of
states use the same tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute

from spark_state.errors import StateValueError
from spark_state.keyed_state.element_serializers import ListSerializer, MapSerializer, Value
from spark_state.keyed_state.keyed_tables import KeyedElementTable, KeyedStateTable
from spark_state.keyed_state.state_kinds import OpenTable
from spark_state.processor.arrow.columns import check_length, numbers_of, struct_of
from spark_state.processor.arrow.keyed_batch import Keys, with_groups
from spark_state.serializers import StructSerializer

# The type stubs of pyarrow.compute reject valid arguments, such as an array of any type.
pc: Any = pyarrow.compute

SetKey = Callable[[tuple[Any, ...], int], None]


class ManyKeys:
    """Base of the states of many keys. `table`: the state's table. `serializer`: converter of the
    state's values. `set_key`: sets the current key of the table."""

    def __init__(self, table: Any, serializer: Any, set_key: SetKey) -> None:
        self._table = table
        self._serializer = serializer
        self._set_key = set_key


class ArrowValueState(ManyKeys):
    """State with one value per key."""

    _table: KeyedStateTable[Value]
    _serializer: StructSerializer

    def get_many(self, keys: Keys) -> pa.StructArray:
        """Return the value of each key; null for a key without a value."""
        get = self._table.get
        return self._serializer.to_arrow([get() for _ in _each(keys, self._set_key)])

    def exists_many(self, keys: Keys) -> pa.Array[Any]:
        """Return for each key True if the key has a value, as a boolean array."""
        get = self._table.get
        return pa.array([get() is not None for _ in _each(keys, self._set_key)], pa.bool_())

    def put_many(self, keys: Keys, values: Any) -> None:
        """Set the value of each key. If a key occurs twice, the last value stays.

        Raises StateValueError naming state, column and types.
        """
        states = values_of(values, self._serializer, len(keys))
        put = self._table.put
        for _, state in zip(_each(keys, self._set_key), states, strict=True):
            put(state)

    def clear_many(self, keys: Keys) -> None:
        """Remove the value of each key, if any."""
        for _ in _each(keys, self._set_key):
            self._table.remove()


class ElementState(ManyKeys):
    """Base of the states with a list or a map per key."""

    _table: KeyedElementTable[Any, Value]

    def exists_many(self, keys: Keys) -> pa.Array[Any]:
        """Return a boolean array: for each key, True if the key has a list or a map."""
        exists = self._table.exists
        return pa.array([exists() for _ in _each(keys, self._set_key)], pa.bool_())

    def clear_many(self, keys: Keys) -> None:
        """Remove the list or the map of each key, if any."""
        for _ in _each(keys, self._set_key):
            self._table.clear()


class ArrowListState(ElementState):
    """State with one list per key. An empty list counts as no list."""

    _serializer: ListSerializer

    def get_many(self, keys: Keys) -> pa.ListArray[Any]:
        """Return the list of each key, a list of structs; empty for a key without a list."""
        counts, elements = [], []
        for _ in _each(keys, self._set_key):
            of_key = self._table.elements()
            counts.append(len(of_key))
            elements += [element for _, element in of_key]
        return pa.ListArray.from_arrays(
            _offsets(counts), self._serializer.element.to_arrow(elements)
        )

    def put_many(self, keys: Keys, lists: Any) -> None:
        """Set the list of each key. An empty list removes the key's list. Raises the errors of
        `append_many`."""
        for elements in self._lists(keys, lists):
            self._table.clear()
            self._table.append(elements)

    def append_many(self, keys: Keys, lists: Any) -> None:
        """Append to the list of each key. `lists`: a ListArray of structs, such as a result of
        `KeyedBatch.by_key`. Raises StateValueError naming state, column and types."""
        for elements in self._lists(keys, lists):
            self._table.append(elements)

    def _lists(self, keys: Keys, lists: Any) -> Iterator[list[Value]]:
        """Make each key the current key in turn, and yield the elements for the key."""
        serializer = self._serializer.element
        owner = serializer.owner
        if isinstance(lists, pa.ChunkedArray):
            lists = lists.combine_chunks()
        if not isinstance(lists, pa.ListArray | pa.LargeListArray):
            raise StateValueError(
                f"{owner}: give a pyarrow ListArray of structs, as KeyedBatch.by_key makes it, not "
                f"{type(lists).__name__}"
            )
        check_length(len(lists), len(keys), owner)
        lengths = pc.list_value_length(lists).fill_null(0).to_pylist()
        flat = lists.flatten()
        elements = iter(values_of(flat, serializer, len(flat)))
        for _, length in zip(_each(keys, self._set_key), lengths, strict=True):
            yield [*islice(elements, length)]


class ArrowMapState(ElementState):
    """State with one map per key. An empty map counts as no map. Most calls take keys and user keys
    of equal length, such as `batch.keys_of_rows()` and a column of the rows: each key with the user
    key at the same position is a pair."""

    _serializer: MapSerializer

    def get_many(self, keys: Keys, user_keys: Any) -> pa.StructArray:
        """Return the value of each pair; null for a pair without a value."""
        values = [self._table.get(user_key) for user_key in self._pairs(keys, user_keys)]
        return self._serializer.value.to_arrow(values)

    def put_many(self, keys: Keys, user_keys: Any, values: Any) -> None:
        """Set the value of each pair. If a pair occurs twice, the last value stays.

        Raises StateValueError naming state, column and types.
        """
        new = values_of(values, self._serializer.value, len(keys))
        for user_key, value in zip(self._pairs(keys, user_keys), new, strict=True):
            self._table.put(user_key, value)

    def remove_many(self, keys: Keys, user_keys: Any) -> None:
        """Remove the value of each pair, if any."""
        for user_key in self._pairs(keys, user_keys):
            self._table.remove(user_key)

    def items_many(self, keys: Keys) -> pa.Array[Any]:
        """Return the map of each key, user keys in order; empty for a key without a map."""
        counts, user_keys, values = [], [], []
        thaw = self._serializer.keys.thaw
        for _ in _each(keys, self._set_key):
            entries = self._table.elements()
            counts.append(len(entries))
            user_keys += [thaw(user_key) for user_key, _ in entries]
            values += [value for _, value in entries]
        offsets: Any = _offsets(counts)
        return pa.MapArray.from_arrays(
            offsets,
            self._serializer.key.to_arrow(user_keys),
            self._serializer.value.to_arrow(values),
        )

    def _pairs(self, keys: Keys, user_keys: Any) -> Iterator[Value]:
        """Make the key of each pair the current key in turn, and yield the pair's user key."""
        named = values_of(user_keys, self._serializer.key, len(keys))
        frozen = self._serializer.keys.freeze_all(named)
        for _, user_key in zip(_each(keys, self._set_key), frozen, strict=True):
            yield user_key


class ArrowTimers:
    """Timers of many keys, in milliseconds since 1970."""

    def __init__(self, table: KeyedElementTable[int, tuple[()]], set_key: SetKey) -> None:
        self._table = table
        self._set_key = set_key

    def register(self, keys: Keys, times_ms: Any) -> None:
        for time_ms in self._timers(keys, times_ms):
            if self._table.get(time_ms) is None:
                self._table.put(time_ms, ())

    def delete(self, keys: Keys, times_ms: Any) -> None:
        for time_ms in self._timers(keys, times_ms):
            self._table.remove(time_ms)

    def list(self, keys: Keys) -> pa.ListArray[Any]:
        counts: list[int] = []
        times: list[int] = []
        for _ in _each(keys, self._set_key):
            of_key = [time_ms for time_ms, _ in self._table.elements()]
            counts.append(len(of_key))
            times += of_key
        return pa.ListArray.from_arrays(_offsets(counts), pa.array(times, pa.int64()))

    def _timers(self, keys: Keys, times_ms: Any) -> Iterator[int]:
        """Make each key the current key in turn, and yield the time for the key."""
        times = numbers_of(times_ms, "timers")
        check_length(len(times), len(keys), "timers")
        for _, time_ms in zip(_each(keys, self._set_key), times.to_pylist(), strict=True):
            yield time_ms


ArrowState = ArrowValueState | ArrowListState | ArrowMapState


def arrow_state(opened: OpenTable, set_key: SetKey) -> ArrowState | ArrowTimers:
    """Return the object with which a processor uses an opened table for many keys: a state, or
    timers."""
    match opened.kind:
        case "value":
            return ArrowValueState(opened.table, opened.values, set_key)
        case "list":
            return ArrowListState(opened.table, opened.values, set_key)
        case "map":
            return ArrowMapState(opened.table, opened.values, set_key)
        case "timers":
            return ArrowTimers(opened.table, set_key)


def values_of(given: Any, serializer: StructSerializer, length: int) -> list[Value]:
    """Convert `given` to a list of values in the form that state tables store. Raises
    StateValueError for values of other types, and unless there are `length` values."""
    structs = struct_of(given, serializer.struct_type, serializer.owner)
    check_length(len(structs), length, serializer.owner)
    values: Any = serializer.from_arrow(structs)
    return list(values)


def _each(keys: Keys, set_key: SetKey) -> Iterator[None]:
    """Make each key the current key in turn."""
    for key, key_group in with_groups(keys):
        set_key(key, key_group)
        yield


def _offsets(counts: Sequence[int]) -> pa.Int32Array:
    return pa.array([0, *accumulate(counts)], pa.int32())
