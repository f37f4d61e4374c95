"""Conversion of the elements of collections between Python and the Arrow columns of files.

A row of a file holds one element, in the struct of the state's column:

    kind     element      value                struct
    list     position     tuple                list_position int64, list_element struct
    map      user key     tuple                user_map_key struct, user_map_value struct
    timers   expiry time  ()                   expiry_ms int64

A row that deletes an element has the element and no value. A row whose struct is null deletes all
elements that the key has. Values and user keys are tuples in canonical form, see serializers, and
never change in place. User keys are frozen, see frozen_keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from checkpoint_store.files.element_columns import (
    EXPIRY,
    LIST_ELEMENT,
    LIST_POSITION,
    LIST_VALUE,
    MAP_VALUE,
    USER_KEY,
    USER_VALUE,
)
from spark_state.codecs.codec import Forms
from spark_state.errors import StateValueError
from spark_state.frozen_keys import FrozenKeys
from spark_state.serializers import StructSerializer

E = TypeVar("E")
Value = tuple[Any, ...]
ElementRow = tuple[E, Value | None] | None
"""An element and its value, None if the row deletes the element. None instead of the pair deletes
all elements of the key."""


class ElementSerializer:
    """Base of the serializers for rows that hold one element each."""

    def deletes(self, rows: Sequence[ElementRow[Any]]) -> list[bool]:
        """Return for each row True if the row is a deletion."""
        return [row is None or row[1] is None for row in rows]


class ListSerializer(ElementSerializer):
    """A serializer for the elements of a list state. `value_type`: type in the state's descriptor;
    `owner`: name for errors."""

    def __init__(self, value_type: pa.StructType, owner: str, forms: Forms) -> None:
        element_type = value_type.field(LIST_VALUE).type.value_type
        self.element = StructSerializer(element_type, f"{owner}, an element", forms)
        self._owner = owner
        self.struct_type = pa.struct(
            [
                pa.field(LIST_POSITION, pa.int64()),
                pa.field(LIST_ELEMENT, _type_in_files(self.element)),
            ]
        )

    def to_values(self, values: Iterable[Any]) -> list[Value]:
        """Convert elements to canonical form. Raises StateValueError as StructSerializer does."""
        if not hasattr(values, "__iter__"):
            raise StateValueError(f"{self._owner}: {values!r} is not a list of tuples")
        return [*map(self.element.to_state, values)]

    def to_arrow(self, rows: Sequence[ElementRow[int]]) -> pa.StructArray:
        positions: Any = pa.array([None if row is None else row[0] for row in rows], pa.int64())
        values = self.element.to_arrow([None if row is None else row[1] for row in rows])
        return _as_column([positions, values], self.struct_type, rows)

    def from_arrow(self, array: Any) -> list[ElementRow[int]]:
        positions, values = array.flatten()
        return _rows(positions.to_pylist(), self.element.from_arrow(values))


class MapSerializer(ElementSerializer):
    """A serializer for the entries of a map state. `value_type`: type in the state's descriptor;
    `owner`: name for errors."""

    def __init__(self, value_type: pa.StructType, owner: str, forms: Forms) -> None:
        map_type = value_type.field(MAP_VALUE).type
        self.key = StructSerializer(map_type.key_type, f"{owner}, a user key", forms)
        self.keys = FrozenKeys(self.key)
        self.value = StructSerializer(map_type.item_type, f"{owner}, a value", forms)
        self._make_row = forms.make_row
        self._value_names = tuple(field.name for field in map_type.item_type)
        self.struct_type = pa.struct(
            [
                pa.field(USER_KEY, _type_in_files(self.key)),
                pa.field(USER_VALUE, _type_in_files(self.value)),
            ]
        )

    def to_row(self, value: Value) -> Any:
        """Return a value as the row that a processor gets."""
        return self._make_row(self._value_names, value)

    def to_arrow(self, rows: Sequence[ElementRow[Value]]) -> pa.StructArray:
        thaw = self.keys.thaw
        keys = self.key.to_arrow([None if row is None else thaw(row[0]) for row in rows])
        values = self.value.to_arrow([None if row is None else row[1] for row in rows])
        return _as_column([keys, values], self.struct_type, rows)

    def from_arrow(self, array: Any) -> list[ElementRow[Value]]:
        stored, values = array.flatten()
        keys: Any = self.key.from_arrow(stored)
        return _rows([*self.keys.freeze_all(keys)], self.value.from_arrow(values))


class ValueSerializer(ElementSerializer):
    """A serializer for value states with a time to live. A key has at most one element, the empty
    tuple, whose value is the value of the state. The struct in files has the fields of the
    value."""

    def __init__(self, value: StructSerializer) -> None:
        self.value = value
        self.struct_type = pa.struct([field.with_nullable(True) for field in value.struct_type])

    def to_arrow(self, rows: Sequence[ElementRow[tuple[()]]]) -> pa.StructArray:
        return self.value.to_arrow([None if row is None else row[1] for row in rows])

    def from_arrow(self, array: Any) -> list[ElementRow[tuple[()]]]:
        return [None if value is None else ((), value) for value in self.value.from_arrow(array)]


class TimerSerializer(ElementSerializer):
    """A serializer for timers: times in milliseconds since 1970, without values."""

    struct_type = pa.struct([pa.field(EXPIRY, pa.int64())])

    def to_arrow(self, rows: Sequence[ElementRow[int]]) -> pa.StructArray:
        times: Any = pa.array([None if row is None else row[0] for row in rows], pa.int64())
        return _as_column([times], self.struct_type, rows)

    def from_arrow(self, array: Any) -> list[ElementRow[int]]:
        times = array.flatten()[0].to_pylist()
        return [None if time is None else (time, ()) for time in times]


def _rows(elements: Sequence[Any], values: Sequence[Value | None]) -> list[Any]:
    return [
        None if element is None else (element, value)
        for element, value in zip(elements, values, strict=True)
    ]


def _type_in_files(serializer: StructSerializer) -> pa.DataType:
    return serializer.to_arrow([]).type


def _as_column(
    arrays: Sequence[Any], struct_type: pa.StructType, rows: Sequence[object | None]
) -> pa.StructArray:
    absent: Any = pa.array([row is None for row in rows], pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=list(struct_type), mask=absent)
