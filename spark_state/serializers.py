"""Conversion between the Python values of a processor and the Arrow columns of a store.

A value has one Python form, both after a put and after a restore. The form is the same as in
Spark's own ValueState:

    Arrow                      Python
    bool, int8…int64           bool, int
    float32, float64           float (rounded to float32 for float32)
    string, binary             str, bytes
    decimal128(p, s)           decimal.Decimal with exactly s decimals
    date32                     datetime.date
    timestamp[us, tz]          datetime.datetime, naive, in the local time zone of the process
    timestamp[us]              datetime.datetime, naive
    list, map                  list, dict
    struct                     a row, made by `make_row`
    duration[us]               datetime.timedelta
    null                       None

Values of pandas and NumPy become Python values. `codecs.state_codecs` describes all other
conversions, and `codecs.output_codecs` the differences for output rows.

`StructSerializer.to_state` converts a value to the Python form and refuses a value that does not
fit. The method is on the hot path, so a value with the exact types in all fields passes after one
look-up.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Mapping, Sequence, Set
from operator import itemgetter
from typing import Any

import pyarrow as pa

from spark_state.codecs.codec import Codec, Forms, codec_of
from spark_state.codecs.state_codecs import PLAIN_FORMS
from spark_state.errors import StateValueError


def _canonical_types(field: Any, codec: Codec) -> set[type]:
    """Return the types whose instances need no conversion in a field."""
    types = set() if codec.exact is None else {codec.exact}
    return types | {type(None)} if field.nullable else types


class StructSerializer:
    """Serializer for values of one struct type: check, copy, write to Arrow, read from Arrow.
    `struct_type`: the Arrow struct. `owner`: name for errors ("state 'count'"). `forms`: Python
    forms of the values. With the default, nested structs are tuples, and all other values have the
    forms of values in state."""

    def __init__(self, struct_type: pa.StructType, owner: str, forms: Forms = PLAIN_FORMS) -> None:
        self.struct_type = struct_type
        self.owner = owner
        self._fields = tuple(struct_type)
        self._codecs = tuple(codec_of(field.type, forms) for field in self._fields)
        self._accepted: set[tuple[type, ...]] = set()
        self._canonical_types = tuple(map(_canonical_types, self._fields, self._codecs))
        self.immutable = not any(codec.mutable for codec in self._codecs)

    def to_state(self, value: Any) -> tuple[Any, ...]:
        """Convert `value`, a sequence with one item per field, to a tuple in the canonical form.
        Raises StateValueError naming the field, the value and the expected type."""
        if type(value) is tuple:
            if tuple(map(type, value)) in self._accepted:
                return value
        elif self._is_no_sequence(value):
            raise StateValueError(
                f"{self.owner}: {value!r} is not a tuple of {len(self._fields)} fields "
                f"({self._names()}); a value of one field is written (x,)"
            )
        return self._convert(tuple(value))

    def _is_no_sequence(self, value: Any) -> bool:
        # As in Spark, a text of one character may stand for a tuple with the character. A longer
        # text, or a text for several fields, is a mistake.
        if type(value) is str:
            return not len(value) == len(self._fields) == 1
        return isinstance(value, Mapping | Set) or not hasattr(value, "__iter__")

    def _convert(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(values) != len(self._fields):
            raise StateValueError(
                f"{self.owner}: {values!r} has {len(values)} fields, the schema has "
                f"{len(self._fields)}: {self._names()}"
            )
        converted = tuple(map(self._convert_field, range(len(values)), values))
        if all(
            codec.exact is type(value) for codec, value in zip(self._codecs, values, strict=True)
        ):
            self._accepted.add(tuple(map(type, values)))
        return converted

    def _convert_field(self, index: int, value: Any) -> Any:
        field = self._fields[index]
        try:
            converted = None if value is None else self._codecs[index].convert(value)
        except (TypeError, ValueError, ArithmeticError, struct.error) as error:
            reason = f" ({error})" if str(error) else ""
            raise StateValueError(
                f"{self.owner}: field {field.name!r} expects {field.type}, got {value!r} of "
                f"type {type(value).__name__}{reason}"
            ) from error
        if converted is None and not field.nullable:
            raise StateValueError(f"{self.owner}: field {field.name!r} must not be null")
        return converted

    def _names(self) -> str:
        return ", ".join(f"{field.name} {field.type}" for field in self._fields)

    def copy(self, state: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a copy that shares nothing mutable with `state`; `state` itself if nothing is
        mutable."""
        return state if self.immutable else copy.deepcopy(state)

    def deletes(self, states: Sequence[tuple[Any, ...] | None]) -> list[bool]:
        """Return for each state True if the state is absent."""
        return [state is None for state in states]

    def to_arrow(self, states: Sequence[tuple[Any, ...] | None]) -> pa.StructArray:
        """Convert states (None = null) to one Arrow array. Raises StateValueError naming the
        field."""
        absent: Any = pa.array([state is None for state in states], pa.bool_())
        blank = (None,) * len(self._fields)
        rows = [blank if state is None else state for state in states]
        # Not zip: zip makes an iterator for each row.
        columns = [list(map(itemgetter(index), rows)) for index in range(len(self._fields))]
        fields = [field.with_nullable(True) for field in self._fields]
        return pa.StructArray.from_arrays(self.arrays(columns), fields=fields, mask=absent)

    def is_canonical(self, columns: Sequence[Sequence[Any]]) -> bool:
        """Return True if the types of all values are canonical. `columns`: the values of each
        field. The check looks at the types alone."""
        return len(columns) == len(self._canonical_types) and all(
            types.issuperset(map(type, column))
            for types, column in zip(self._canonical_types, columns, strict=True)
        )

    def arrays(self, columns: Sequence[Sequence[Any]]) -> list[pa.Array[Any]]:
        """Convert the canonical values of each field to Arrow. Raises StateValueError naming the
        field."""
        return [self._column(index, column) for index, column in enumerate(columns)]

    def _column(self, index: int, values: Sequence[Any]) -> pa.Array[Any]:
        to_arrow = self._codecs[index].to_arrow
        if to_arrow is not None:
            values = [None if value is None else to_arrow(value) for value in values]
        field = self._fields[index]
        try:
            array: pa.Array[Any] = pa.array(values, field.type)
        except (pa.ArrowException, OverflowError, UnicodeError) as error:
            bad = next((value for value in values if not _fits(value, field.type)), None)
            raise StateValueError(
                f"{self.owner}: field {field.name!r} expects {field.type}, got {bad!r}: {error}"
            ) from error
        return array

    def from_arrow(self, array: Any) -> list[tuple[Any, ...] | None]:
        """Convert an Arrow array to states: the inverse of `to_arrow`."""
        columns = [self._values(index, column) for index, column in enumerate(array.flatten())]
        rows: list[Any] = list(zip(*columns, strict=True)) if columns else [()] * len(array)
        if array.null_count:
            present = array.is_valid().to_pylist()
            return [row if keep else None for row, keep in zip(rows, present, strict=True)]
        return rows

    def _values(self, index: int, column: pa.Array[Any]) -> list[Any]:
        values: list[Any] = column.to_pylist()
        from_arrow = self._codecs[index].from_arrow
        if from_arrow is None:
            return values
        return [None if value is None else from_arrow(value) for value in values]


def _fits(value: Any, value_type: pa.DataType) -> bool:
    try:
        pa.array([value], value_type)
    except (pa.ArrowException, OverflowError, UnicodeError):
        return False
    return True
