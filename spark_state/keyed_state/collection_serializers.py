"""Lists and maps of a key between Python and the Arrow columns of files.

    kind    in Python                      in Arrow
    list    list of elements               struct<list_value: list<struct of the element>>
    map     dict of frozen user keys       struct<map_value: map<struct of the user key,
            to values                                            struct of the value>>

Elements, user keys and values are tuples in the form of `serializers`, and never changed in place;
so a copy of a list or map shares them. All elements of all keys go through one column. User keys
are frozen as `frozen_keys` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa

from spark_state.errors import StateValueError
from spark_state.frozen_keys import FrozenKeys
from spark_state.serializers import Forms, StructSerializer
from spark_state.state_descriptor import LIST_VALUE, MAP_VALUE

Element = tuple[Any, ...]
ListOfKey = list[Element]
MapOfKey = dict[tuple[Any, ...], Element]


class ListSerializer:
    """The lists of a list state; `value_type` and `owner` as of StructSerializer."""

    def __init__(self, value_type: pa.StructType, owner: str, forms: Forms) -> None:
        element_type = value_type.field(LIST_VALUE).type.value_type
        self.element = StructSerializer(element_type, f"{owner}, an element", forms)
        self._owner = owner
        self._list_type = pa.list_(pa.field("element", _type_in_files(self.element)))
        self.struct_type = pa.struct([pa.field(LIST_VALUE, self._list_type)])

    def to_state(self, values: Iterable[Any]) -> ListOfKey:
        """The elements in canonical form. Raises StateValueError as StructSerializer does."""
        if not hasattr(values, "__iter__"):
            raise StateValueError(f"{self._owner}: {values!r} is not a list of tuples")
        to_state = self.element.to_state
        return [to_state(value) for value in values]

    def copy(self, state: ListOfKey) -> ListOfKey:
        """See StateSerializer."""
        return state.copy()

    def to_arrow(self, states: Sequence[ListOfKey | None]) -> pa.StructArray:
        """See StateSerializer. Raises StateValueError naming the field."""
        elements: Any = self.element.to_arrow([*chain.from_iterable(filter(None, states))])
        lists = pa.ListArray.from_arrays(_offsets(states), elements, type=self._list_type)
        return _as_column(lists, self.struct_type, states)

    def from_arrow(self, array: Any) -> list[ListOfKey | None]:
        """See StateSerializer."""
        lists, lengths = _present(array)
        elements: Any = iter(self.element.from_arrow(lists.flatten()))
        return [None if n is None else list(islice(elements, n)) for n in lengths]


class MapSerializer:
    """The maps of a map state; `value_type` and `owner` as of StructSerializer."""

    def __init__(self, value_type: pa.StructType, owner: str, forms: Forms) -> None:
        map_type = value_type.field(MAP_VALUE).type
        self._key = StructSerializer(map_type.key_type, f"{owner}, a user key", forms)
        self.keys = FrozenKeys(self._key)
        self.value = StructSerializer(map_type.item_type, f"{owner}, a value", forms)
        self._make_row = forms.make_row
        self._value_names = tuple(field.name for field in map_type.item_type)
        self._map_type = pa.map_(_type_in_files(self._key), _type_in_files(self.value))
        self.struct_type = pa.struct([pa.field(MAP_VALUE, self._map_type)])

    def to_row(self, value: Element) -> Any:
        """A value with the names of its fields, as far as the forms have names."""
        return self._make_row(self._value_names, value)

    def copy(self, state: MapOfKey) -> MapOfKey:
        """See StateSerializer."""
        return state.copy()

    def to_arrow(self, states: Sequence[MapOfKey | None]) -> pa.StructArray:
        """See StateSerializer. Raises StateValueError naming the field."""
        maps = [*filter(None, states)]
        keys: Any = self._key.to_arrow([*map(self.keys.thaw, chain.from_iterable(maps))])
        values: Any = self.value.to_arrow(
            [*chain.from_iterable(entries.values() for entries in maps)]
        )
        maps_of_keys = pa.MapArray.from_arrays(_offsets(states), keys, values)
        return _as_column(maps_of_keys, self.struct_type, states)

    def from_arrow(self, array: Any) -> list[MapOfKey | None]:
        """See StateSerializer."""
        maps, lengths = _present(array)
        stored: Any = self._key.from_arrow(maps.keys)
        keys = self.keys.freeze_all(stored)
        entries: Any = zip(keys, self.value.from_arrow(maps.items), strict=True)
        return [None if n is None else dict(islice(entries, n)) for n in lengths]


def _type_in_files(serializer: StructSerializer) -> pa.DataType:
    return serializer.to_arrow([]).type


def _offsets(states: Sequence[ListOfKey | MapOfKey | None]) -> Any:
    lengths = [0 if state is None else len(state) for state in states]
    return pa.array(np.cumsum([0, *lengths], dtype=np.int32))


def _as_column(
    array: Any, struct_type: pa.StructType, states: Sequence[object | None]
) -> pa.StructArray:
    absent: Any = pa.array([state is None for state in states], pa.bool_())
    return pa.StructArray.from_arrays([array], fields=list(struct_type), mask=absent)


def _present(array: Any) -> tuple[Any, list[int | None]]:
    """The lists or maps that are there, and for each state how long it is, None if absent."""
    present = array.is_valid()
    # Filtered, so that every part of the values belongs to one of them.
    values = array.filter(present).field(0)
    lengths = iter(np.diff(values.offsets.to_numpy()).tolist())
    return values, [next(lengths) if valid else None for valid in present.to_pylist()]
