"""Folds the rows of lists, maps and expiring values by element, and joins the elements of a key.

In files each element has a row, see `element_columns`. Here a row has the columns

    key columns    with the names and types that users see
    ELEMENT        name of the element within the key: position in the list, or user key of the
                   map; a value with an expiry is element 0 of its key
    VALUE          value of the element; null in rows that delete
    EXPIRES        time of expiry, in ms since 1970; null if never
    _key_group     as in the file
    _op            put or delete; CLEAR deletes all earlier elements of the key

A reader sees a row for each key, with a whole list or map, or the columns of the value. Pure, and
vectorised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_store.files.element_columns import (
    EXPIRES as EXPIRES_IN_FILES,
)
from checkpoint_store.files.element_columns import (
    LIST_ELEMENT,
    LIST_POSITION,
    USER_KEY,
    USER_VALUE,
)
from checkpoint_store.files.evolved_columns import evolved
from checkpoint_store.files.state_file import DELETE, KEY_GROUP_COLUMN, OP, PUT
from checkpoint_store.states.key_codes import key_codes

ELEMENT, VALUE, EXPIRES = "_cowstate_element", "_cowstate_value", "_cowstate_expires_ms"
CLEAR = "clear"

_Numbers = npt.NDArray[np.int64]
_IN_FILES = {
    "list": (LIST_POSITION, LIST_ELEMENT),
    "map": (USER_KEY, USER_VALUE),
}


def element_fields(kind: str, shown: Sequence[pa.Field[Any]]) -> list[pa.Field[Any]]:
    """The columns that the row of an element has in addition to the key columns. `shown`: the value
    columns of the state as users see them. A list or map state has one value column, with the
    whole list or map."""
    element_type, value_type = pa.int64(), pa.struct(list(shown))
    if kind != "value":
        collection: Any = shown[0].type
        of_map = kind == "map"
        element_type = collection.key_type if of_map else element_type
        value_type = collection.item_type if of_map else collection.value_type
    return [
        pa.field(ELEMENT, element_type),
        pa.field(VALUE, value_type),
        pa.field(EXPIRES, pa.int64()),
    ]


def element_rows(rows: pa.Table, kind: str, column: Any, schema: pa.Schema) -> pa.Table:
    """Convert the rows of a state to rows of elements. `schema`: the key columns of `rows`, and the
    columns of `element_fields`. `column`: the state's column of `rows`, None if the file has no
    such column."""
    keys = [name for name in schema.names if name in rows.column_names]
    kept = rows.select([*keys, KEY_GROUP_COLUMN, OP])
    if column is None:
        column = pa.chunked_array([pa.nulls(rows.num_rows, pa.struct([]))])
    if kind == "value":
        elements, values = _value_of_key(column, schema.field(VALUE).type)
    else:
        name, value_name = _IN_FILES[kind]
        elements = _field(column, name, schema.field(ELEMENT).type)
        values = _field(column, value_name, schema.field(VALUE).type)
    expires = _field(column, EXPIRES_IN_FILES, pa.int64())
    clears = pc.and_(pc.equal(kept[OP], DELETE), pc.is_null(elements))
    operations = pc.if_else(clears, CLEAR, kept[OP])
    kept = kept.set_column(kept.column_names.index(OP), OP, operations)
    return _with_columns(kept, elements, values, expires, schema)


def _value_of_key(column: Any, value_type: Any) -> tuple[Any, Any]:
    """Split a column of values into elements and values. The element of a key with a value is 0,
    the element of a key without a value is null. The returned values have no expiry."""
    absent = pc.is_null(column)
    elements = pc.if_else(absent, pa.scalar(None, pa.int64()), pa.scalar(0, pa.int64()))
    return elements, evolved(column, value_type)


def _with_columns(
    kept: pa.Table, elements: Any, values: Any, expires: Any, schema: pa.Schema
) -> pa.Table:
    columns = {ELEMENT: elements, VALUE: values, EXPIRES: expires}
    arrays = [columns[name] if name in columns else kept[name] for name in schema.names]
    cast = [evolved(array, field.type) for array, field in zip(arrays, schema, strict=True)]
    cast += [kept[KEY_GROUP_COLUMN], kept[OP]]
    return pa.Table.from_arrays(cast, [*schema.names, KEY_GROUP_COLUMN, OP])


def _field(column: Any, name: str, field_type: pa.DataType) -> Any:
    index = column.type.get_field_index(name)
    if index < 0:
        return pa.chunked_array([pa.nulls(len(column)).cast(field_type)])
    return evolved(pc.struct_field(column, [index]), field_type)


def fold_elements(
    rows: pa.Table, key_names: Sequence[str], keep_tombstones: bool = False
) -> pa.Table:
    """The last row of each element, without elements that were cleared later.

    With `keep_tombstones` the result also has rows that delete, and the last row that clears a key,
    in front of all later rows of the key; folding the result with later rows equals folding all
    rows.
    """
    owners = key_codes(rows, key_names)
    # A row that clears has a null element, and so differs from the rows of elements.
    elements = key_codes(rows, [*key_names, ELEMENT])
    clears = pc.equal(rows[OP], CLEAR).to_numpy()
    folded = rows.filter(pa.array(are_last(owners, elements, clears)))
    return folded if keep_tombstones else folded.filter(pc.equal(folded[OP], PUT))


def are_last(
    owners: _Numbers, elements: _Numbers, clears: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Flag the last row of each element, unless a later row clears the element's key. `owners`: for
    each row, the number of the row's key. `elements`: for each row, the number of the row's
    element; elements of different keys have different numbers. Numbers must be small: the function
    makes arrays as long as the greatest number."""
    places = np.arange(len(owners))
    last_clear = np.full(owners.max(initial=-1) + 1, -1)
    np.maximum.at(last_clear, owners[clears], places[clears])
    last = np.full(elements.max(initial=-1) + 1, -1)
    np.maximum.at(last, elements, places)
    are_last_ones: npt.NDArray[np.bool_] = last[elements] == places
    return are_last_ones & (places >= last_clear[owners])


def live_elements(rows: pa.Table, now_ms: int | None) -> pa.Table:
    """The elements that have not expired at `now_ms`; None: all elements."""
    if now_ms is None or pc.all(pc.is_null(rows[EXPIRES]), min_count=0).as_py():
        return rows
    return rows.filter(pc.fill_null(pc.greater(rows[EXPIRES], now_ms), True))


def whole_collections(rows: pa.Table, kind: str, shown: pa.Schema) -> pa.Table:
    """Join the elements of each key to one row with the columns of `shown`: lists in the order of
    positions, maps in any order."""
    if kind == "value":
        keys = rows.select(shown.names[: len(shown.names) - rows[VALUE].type.num_fields])
        structs: Any = rows[VALUE].combine_chunks()
        return pa.Table.from_arrays([*keys.columns, *structs.flatten()], schema=shown)
    *key_names, name = shown.names
    codes = key_codes(rows, key_names)
    positions = rows[ELEMENT].to_numpy() if kind == "list" else np.arange(len(codes))
    order = np.lexsort((positions, codes))
    firsts = np.flatnonzero(np.diff(codes[order], prepend=-1) > 0)
    ordered = rows.take(pa.array(order))
    offsets: Any = pa.array([*firsts, len(codes)], pa.int32())
    values: Any = ordered[VALUE].combine_chunks()
    collections: Any
    if kind == "list":
        collections = pa.ListArray.from_arrays(offsets, values)
    else:
        collections = pa.MapArray.from_arrays(offsets, ordered[ELEMENT].combine_chunks(), values)
    whole = ordered.select(key_names).take(pa.array(firsts))
    return whole.append_column(shown.field(name), collections.cast(shown.field(name).type))
