"""Rows for the elements of list and map states: option flattenCollectionTypes.

    kind   stored column   columns of a row
    list   list_value      list_element                    in the order of the list
    map    map_value       user_map_key, user_map_value    in the order of the map

Spark's own state reader has the same names. The key columns come first and are repeated; an element
column with the name of a key column has underscores appended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from checkpoint_store.states.state_history import StateShape
from spark_state.errors import ConfigurationError

_ELEMENT, _USER_KEY, _USER_VALUE = "list_element", "user_map_key", "user_map_value"
_COLUMNS = {"list": (_ELEMENT,), "map": (_USER_KEY, _USER_VALUE)}


@dataclass(frozen=True, slots=True)
class FlattenedColumns:
    """Columns of flattened rows. `stored`: the column of the lists or maps; `names`: the columns in
    place of `stored`."""

    key_names: tuple[str, ...]
    stored: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, shape: StateShape, url: str) -> Self:
        """The columns for a state. Raises ConfigurationError if the state is neither a list state
        nor a map state."""
        if shape.kind not in _COLUMNS:
            raise ConfigurationError(
                f"option flattenCollectionTypes is for list and map states, but {shape.state!r} of "
                f"{url} is a {shape.kind} state: leave the option out"
            )
        *key_names, stored = shape.columns
        names = tuple(_other_than(key_names, name) for name in _COLUMNS[shape.kind])
        return cls(tuple(key_names), stored, names)

    def schema(self, schema: StructType) -> StructType:
        """The schema of the flattened rows, for a state with schema `schema`."""
        types = _element_types(schema[self.stored].dataType)
        elements = map(StructField, self.names, types)
        return StructType([*(schema[name] for name in self.key_names), *elements])

    def stored_names(self, asked: Sequence[str]) -> list[str]:
        """The columns of the state to read. The lists or maps are always among these columns,
        because their sizes give the number of rows."""
        return [*(name for name in self.key_names if name in asked), self.stored]

    def rows(self, state: pa.Table) -> Iterator[pa.Table]:
        """Yield the flattened rows, a row for each element of a list or map of `state`. `state` has
        the columns that `stored_names` returned."""
        for batch in state.to_batches():
            # `take` drops elements outside a slice or under a null value.
            collections: Any = batch.column(self.stored).take(_places(np.arange(len(batch))))
            if pa.types.is_map(collections.type):
                elements = [collections.keys, collections.items]
            else:
                elements = [collections.flatten()]
            lengths = np.diff(collections.offsets.to_numpy())
            owners = _places(np.repeat(np.arange(len(batch)), lengths))
            keys = [name for name in batch.schema.names if name != self.stored]
            repeated = [batch.column(name).take(owners) for name in keys]
            yield pa.Table.from_arrays([*repeated, *elements], [*keys, *self.names])


def _places(numbers: npt.NDArray[np.int64]) -> Any:
    return pa.array(numbers)


def _other_than(taken: Sequence[str], name: str) -> str:
    while name in taken:
        name += "_"
    return name


def _element_types(collection_type: DataType) -> list[DataType]:
    if isinstance(collection_type, MapType):
        return [collection_type.keyType, collection_type.valueType]
    assert isinstance(collection_type, ArrayType), "a state with elements is a list or a map"
    return [collection_type.elementType]
