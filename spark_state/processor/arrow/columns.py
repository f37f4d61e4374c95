"""Conversion of a processor's columns to a struct array of a given type.

Columns are matched by name, in any order. If two columns of the type have the same name, all
columns must be in the order of the type. A value is converted only if the new type can hold exactly
the same value: between integers, floating-point numbers and decimals, between string and
large_string, between units of timestamps. One exception, as in the row API: a double in a float
column is rounded. A double beyond the range of floats is refused. A number never becomes text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from spark_state.errors import StateValueError

# The type stubs of pyarrow.compute reject valid arguments, such as an array of any type.
pc: Any = pyarrow.compute

_KINDS = (
    ("number", lambda t: pa.types.is_integer(t) or pa.types.is_floating(t) or _is_decimal(t)),
    ("text", lambda t: pa.types.is_string(t) or pa.types.is_large_string(t)),
    ("binary", lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t)),
    ("timestamp with a zone", lambda t: pa.types.is_timestamp(t) and t.tz is not None),
    ("timestamp without a zone", lambda t: pa.types.is_timestamp(t) and t.tz is None),
    ("list", lambda t: pa.types.is_list(t) or pa.types.is_large_list(t)),
    ("date", pa.types.is_date),
    ("boolean", pa.types.is_boolean),
    ("duration", pa.types.is_duration),
    ("struct", pa.types.is_struct),
    ("map", pa.types.is_map),
)


def struct_of(given: Any, struct_type: pa.StructType, owner: str) -> pa.StructArray:
    """Convert `given` to structs of `struct_type`.

    `given`: a pyarrow Table, RecordBatch or StructArray with the columns of `struct_type`; if
    `struct_type` has one field, also an array of pyarrow or numpy. `owner`: name for errors. Raises
    StateValueError naming column and types.
    """
    arrays = _columns(given, struct_type, owner)
    columns = [
        _as_type(array, field, owner) for array, field in zip(arrays, struct_type, strict=True)
    ]
    return pa.StructArray.from_arrays(columns, fields=list(struct_type))


def numbers_of(given: Any, owner: str) -> Any:
    """Convert `given`, an array or a sequence, to an Int64Array without nulls. Raises
    StateValueError."""
    array = given if isinstance(given, pa.Array | pa.ChunkedArray) else _array(given, owner)
    return _as_type(_whole(array), pa.field("time", pa.int64(), nullable=False), owner)


def check_length(length: int, keys: int, owner: str) -> None:
    """Raise StateValueError unless there is one value for each key."""
    if length != keys:
        raise StateValueError(f"{owner}: {length} values were given for {keys} keys; give one each")


def _array(given: Any, owner: str) -> pa.Array[Any]:
    try:
        array: pa.Array[Any] = pa.array(given)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise StateValueError(
            f"{owner}: give a pyarrow array, not {type(given).__name__} ({error})"
        ) from error
    return array


def _columns(given: Any, struct_type: pa.StructType, owner: str) -> list[Any]:
    given = _array(given, owner) if isinstance(given, np.ndarray) else _whole(given)
    if isinstance(given, pa.StructArray):
        if given.null_count:
            raise StateValueError(
                f"{owner}: {given.null_count} of the structs are null; leave their keys out, or "
                "call clear_many"
            )
        given = pa.RecordBatch.from_struct_array(given)
    if isinstance(given, pa.Array) and struct_type.num_fields == 1:
        return [given]
    if not isinstance(given, pa.Table | pa.RecordBatch):
        raise StateValueError(
            f"{owner}: give a pyarrow Table, RecordBatch or StructArray with the columns "
            f"{_described(struct_type)}, not {type(given).__name__}"
        )
    names, wanted = given.schema.names, [field.name for field in struct_type]
    if names == wanted:
        return [_whole(column) for column in given.columns]
    if sorted(names) != sorted(wanted) or len(set(wanted)) < len(wanted):
        raise StateValueError(
            f"{owner}: the columns are {', '.join(names)}, not {_described(struct_type)}"
        )
    return [_whole(given.column(names.index(name))) for name in wanted]


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _as_type(array: Any, field: pa.Field[Any], owner: str) -> Any:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.null_count and not field.nullable:
        raise StateValueError(f"{owner}: column {field.name!r} must not have nulls")
    if array.type == field.type:
        return array
    reason = ""
    try:
        if _may_become(array.type, field.type):
            return array.cast(field.type)
        if _kind(array.type) == _kind(field.type) == "number":
            return _as_number(array, field.type)
    except pa.ArrowException as error:
        reason = f": {error}"
    raise StateValueError(
        f"{owner}: column {field.name!r} expects {field.type}, got {array.type}{reason}"
    )


def _as_number(array: Any, wanted: Any) -> Any:
    """Cast numbers between types for which Arrow's own cast does not check the values. Raises
    ArrowInvalid for a value that the cast would change."""
    if pa.types.is_integer(array.type):
        # For integers Arrow requires 19 digits before the decimal point, whatever the values.
        wide = pa.decimal128(min(19 + wanted.scale, 38), wanted.scale)
        return array.cast(wide).cast(wanted)
    converted = array.cast(wanted)
    if pa.types.is_floating(wanted) and pa.types.is_floating(array.type):
        changed = pc.and_not(pc.is_inf(converted), pc.is_inf(array))
    else:
        changed = pc.not_equal(converted.cast(array.type, safe=False), array)
    if pc.any(changed).as_py():
        example = array.filter(changed)[0]
        raise pa.ArrowInvalid(f"{example} is not one of its values")
    return converted


def _may_become(given: Any, wanted: Any) -> bool:
    """Return True if Arrow's cast between the types never changes a value. For a value that the
    new type cannot hold, the cast raises an error."""
    if pa.types.is_null(given) or given == wanted:
        return True
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        fields: Any = [*zip(given, wanted, strict=False)]
        return len(fields) == wanted.num_fields == given.num_fields and all(
            field.name == wanted_field.name and _may_become(field.type, wanted_field.type)
            for field, wanted_field in fields
        )
    if pa.types.is_map(given) and pa.types.is_map(wanted):
        return _may_become(given.key_type, wanted.key_type) and _may_become(
            given.item_type, wanted.item_type
        )
    if _kind(given) == _kind(wanted) == "list":
        return _may_become(given.value_type, wanted.value_type)
    if _kind(given) == _kind(wanted) == "number":
        return _keeps_numbers(given, wanted)
    return _kind(given) == _kind(wanted)


def _keeps_numbers(given: Any, wanted: Any) -> bool:
    if pa.types.is_floating(given):
        return pa.types.is_integer(wanted) or (
            pa.types.is_floating(wanted) and wanted.bit_width >= given.bit_width
        )
    if _is_decimal(given):
        return not pa.types.is_floating(wanted)
    return not _is_decimal(wanted)


def _kind(data_type: pa.DataType) -> str:
    return next((kind for kind, is_kind in _KINDS if is_kind(data_type)), str(data_type))


def _is_decimal(data_type: pa.DataType) -> bool:
    return pa.types.is_decimal(data_type)


def _described(struct_type: pa.StructType) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in struct_type)
