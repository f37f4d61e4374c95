"""Columns for the elements of list and map states, and for timers: one row for each element.

    kind     struct of the state's column
    list     list_position int64, list_element struct
    map      user_map_key struct, user_map_value struct
    timers   expiry_ms int64

A deleting row without a struct deletes all earlier elements of its key. Files of older releases
have one row for each list or map: a struct of one column, `list_value` or `map_value`.

The struct of an expiring state has one more column, `_expires_ms`: from this time on, in
milliseconds since 1970, the value or element is gone.
"""

from __future__ import annotations

import pyarrow as pa

LIST_POSITION, LIST_ELEMENT = "list_position", "list_element"
USER_KEY, USER_VALUE = "user_map_key", "user_map_value"
EXPIRY = "expiry_ms"
EXPIRES = "_expires_ms"

LIST_VALUE, MAP_VALUE = "list_value", "map_value"
"""The one column of a whole list or map, under the name in Spark's own state reader."""


def is_whole_collection(struct_type: pa.StructType) -> bool:
    """Return True if a file's column of a state has whole lists or maps."""
    return struct_type.num_fields == 1 and struct_type.field(0).name in (LIST_VALUE, MAP_VALUE)


def has_elements(struct_type: pa.StructType) -> bool:
    """Return True if a file's column of a state has elements, or values that expire."""
    return any(name in struct_type.names for name in (LIST_POSITION, USER_KEY, EXPIRY, EXPIRES))
