"""How files hold the elements of list and map states, and timers: a row for each element.

    kind     struct of the state's column
    list     list_position int64, list_element struct
    map      user_map_key struct, user_map_value struct
    timers   expiry_ms int64

A row that deletes and has no struct deletes all elements that its key has until then. Files of
older releases have a row for each list or map: a struct of one column, `list_value` or `map_value`.

What expires has a further column in the struct, `_expires_ms`: from that time on, in milliseconds
since 1970, the value or element is not there.
"""

from __future__ import annotations

import pyarrow as pa

LIST_POSITION, LIST_ELEMENT = "list_position", "list_element"
USER_KEY, USER_VALUE = "user_map_key", "user_map_value"
EXPIRY = "expiry_ms"
EXPIRES = "_expires_ms"

LIST_VALUE, MAP_VALUE = "list_value", "map_value"
"""The one column of a whole list or map, as Spark's own state reader calls it."""


def is_whole_collection(struct_type: pa.StructType) -> bool:
    """Whether a file's column of a state has whole lists or maps."""
    return struct_type.num_fields == 1 and struct_type.field(0).name in (LIST_VALUE, MAP_VALUE)


def has_elements(struct_type: pa.StructType) -> bool:
    """Whether a file's column of a state has elements, or values that expire."""
    return any(name in struct_type.names for name in (LIST_POSITION, USER_KEY, EXPIRY, EXPIRES))
