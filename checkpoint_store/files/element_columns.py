"""Columns for the elements of list and map states, and for timers: one row for each element.

    kind     struct of the state's column
    list     list_position int64, list_element struct
    map      user_map_key struct, user_map_value struct
    timers   expiry_ms int64

A row with `_op` delete and a null struct deletes all earlier elements of its key.

The struct of an expiring state has one more column, `_expires_ms`: from this time on, in
milliseconds since 1970, the value or element is gone.
"""

from __future__ import annotations

LIST_POSITION, LIST_ELEMENT = "list_position", "list_element"
USER_KEY, USER_VALUE = "user_map_key", "user_map_value"
EXPIRY = "expiry_ms"
EXPIRES = "_expires_ms"

LIST_VALUE, MAP_VALUE = "list_value", "map_value"
"""The only column in the schema of a list or map state. Spark's own state reader has the same
names."""
