"""Conversion of a table's rows between Arrow and Python, and conversion of keys given by callers.

A row is a key and a state. The key has the values of the key columns, in the form of key_columns.
The state has the values of all other columns, in the form of Arrow's `to_pylist`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from spark_state.errors import ConfigurationError
from spark_state.keyed_state.current_key import Key
from spark_state.keyed_state.key_columns import KeyColumns

RowValue = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Converter for rows of a schema, see the module.

    - `keys`: the key columns.
    - `value_names`: names of all other columns.
    - `exact_types`: for each key column the Python type that needs no conversion, see _exact_type.
    - `nested`: positions in `value_names` of the columns with structs, lists or maps.
    """

    schema: pa.Schema
    keys: KeyColumns
    value_names: tuple[str, ...]
    exact_types: tuple[type | None, ...]
    nested: tuple[int, ...]

    @classmethod
    def of(cls, schema: pa.Schema, key_names: Sequence[str]) -> Self:
        schema = schema.remove_metadata()
        key_types = tuple(schema.field(name).type for name in key_names)
        values = [field for field in schema if field.name not in key_names]
        return cls(
            schema=schema,
            keys=KeyColumns(tuple(key_names), key_types, tuple(map(str, key_types))),
            value_names=tuple(field.name for field in values),
            exact_types=tuple(map(_exact_type, key_types)),
            nested=tuple(i for i, field in enumerate(values) if pa.types.is_nested(field.type)),
        )

    def rows(self, batch: pa.RecordBatch) -> Iterator[tuple[Key, RowValue]]:
        length = batch.num_rows
        keys = self.keys.to_keys([batch.column(name) for name in self.keys.names], length)
        values = [batch.column(name).to_pylist() for name in self.value_names]
        states: Sequence[RowValue] = list(zip(*values, strict=True)) if values else [()] * length
        return zip(keys, states, strict=True)

    def to_key(self, given: Any) -> Key:
        """Return a key in the form of keys read from a file.

        `given`: the value of the only key column, a tuple with the value of each key column, or a
        mapping from column names to values. A struct in the key may be a mapping or a tuple, an
        array a list or a tuple. Raises ConfigurationError for a key that does not fit the key
        columns.
        """
        names = self.keys.names
        if isinstance(given, Mapping):
            key = tuple(given[name] for name in names if name in given)
            fits = len(key) == len(names) == len(given)
        else:
            key = given if isinstance(given, tuple) else (given,)
            fits = len(key) == len(names)
        if len(names) == 1 and _is_alone(given, self.keys.arrow_types[0], fits):
            key, fits = (given,), True
        if not fits and not names:
            raise ConfigurationError(f"{given!r} is no key: without key columns the key is ()")
        if not fits:
            raise ConfigurationError(
                f"{given!r} is no key: the key columns are {', '.join(names)}; give one value for "
                "each of them, in this order as a tuple, or by name as a dict"
            )
        if tuple(map(type, key)) == self.exact_types:
            return key
        return self._converted(key)

    def _converted(self, key: Key) -> Key:
        """Return the key in the form of a key read from a column."""
        arrays = []
        for name, kind, value in zip(self.keys.names, self.keys.arrow_types, key, strict=True):
            try:
                array = pa.array([value], kind)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise _not_of_type(name, kind, value) from error
            # Arrow cuts a fraction off without an error.
            if pa.types.is_integer(kind) and array[0].as_py() != value:
                raise _not_of_type(name, kind, value)
            arrays.append(array)
        return self.keys.to_keys(arrays, 1)[0]

    def to_value(self, state: RowValue) -> dict[str, Any]:
        """Return the values by column name, as a dict that the caller may change."""
        value = dict(zip(self.value_names, state, strict=True))
        for place in self.nested:
            name = self.value_names[place]
            value[name] = copy.deepcopy(value[name])
        return value

    def to_batch(self, entries: Sequence[tuple[Key, RowValue]]) -> pa.RecordBatch:
        names = (*self.keys.names, *self.value_names)
        columns = dict(zip(names, zip(*(k + s for k, s in entries), strict=True), strict=True))
        arrays = [pa.array(columns[field.name], field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _is_alone(given: Any, kind: Any, fits: bool) -> bool:
    """True if `given`, a tuple or a mapping, is itself the value of the only key column. `kind`:
    type of the key column. `fits`: True if `given` has the form of a key with one column."""
    if pa.types.is_list(kind) and isinstance(given, tuple) and fits:
        return not isinstance(given[0], list | tuple | None)
    return not fits and (pa.types.is_struct(kind) or pa.types.is_list(kind))


def _exact_type(kind: pa.DataType) -> type | None:
    """Return the Python type of key values that need no conversion; None if all values of the
    column must be converted. For example, floats must be converted, because every NaN becomes the
    same object."""
    if pa.types.is_integer(kind):
        return int
    if pa.types.is_string(kind):
        return str
    return bytes if pa.types.is_binary(kind) else None


def _not_of_type(name: str, kind: pa.DataType, value: object) -> ConfigurationError:
    return ConfigurationError(f"{value!r} is no value of the key column {name!r}, which is {kind}")
