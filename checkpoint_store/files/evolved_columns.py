"""Conversion of columns from a file's old schema to a later schema, by names and types.

    an added field              null
    a removed field             left out
    fields in another order     found by name
    another type                cast

Structs, lists and maps are converted at every depth. The writer checks if a change is allowed.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def evolved(array: Any, data_type: pa.DataType) -> Any:
    """Convert an array or chunked array to `data_type`. Raises pyarrow's ArrowInvalid for values
    that do not fit the type."""
    if array.type == data_type:
        return array
    if isinstance(array, pa.ChunkedArray):
        empty: Any = pa.nulls(0).cast(data_type)
        return pa.chunked_array([empty, *(evolved(chunk, data_type) for chunk in array.chunks)])
    kind: Any = data_type
    if pa.types.is_struct(data_type) and pa.types.is_struct(array.type):
        fields = [_field(array, field) for field in kind]
        as_nullable = [field.with_nullable(True) for field in kind]
        structs = pa.StructArray.from_arrays(fields, fields=as_nullable, mask=array.is_null())
        return structs.cast(data_type)
    if pa.types.is_list(data_type) and pa.types.is_list(array.type):
        # Values that a slice or a null list hides need not fit. `take` drops hidden values.
        taken = array.take(pa.array(range(len(array)), pa.int64()))
        values = evolved(taken.values, kind.value_type)
        return pa.ListArray.from_buffers(
            data_type, len(taken), taken.buffers()[:2], offset=taken.offset, children=[values]
        )
    if pa.types.is_map(data_type) and pa.types.is_map(array.type):
        return _evolved_map(array, kind)
    return array.cast(data_type)


def _evolved_map(array: Any, data_type: Any) -> Any:
    # `take` drops entries that a slice or a null value hides.
    taken = array.take(pc.indices_nonzero(pc.is_valid(array)))
    keys, items = evolved(taken.keys, data_type.key_type), evolved(taken.items, data_type.item_type)
    offsets = pc.subtract(taken.offsets, taken.offsets[0])
    maps = pa.MapArray.from_arrays(offsets, keys, items).cast(data_type)
    places = pc.cumulative_sum(pc.is_valid(array).cast(pa.int64()))
    chosen = pc.if_else(pc.is_valid(array), pc.subtract(places, 1), pa.scalar(None, pa.int64()))
    return maps.take(chosen)


def _field(structs: Any, field: pa.Field[Any]) -> Any:
    index = structs.type.get_field_index(field.name)
    if index < 0:
        return pa.nulls(len(structs)).cast(field.type)
    # A child array alone does not show which structs are null.
    return evolved(pc.struct_field(structs, [index]), field.type)
