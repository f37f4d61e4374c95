"""Stable hash from a key to a key group, the same in the JVM and in Python.

A key is the tuple of its grouping columns. The hash is Spark's `xxhash64(columns…)`: XXH64 of the
first column with seed 42, then XXH64 of each further column with the preceding hash as seed. A null
leaves the hash unchanged. A column is hashed as these bytes, little endian:

    boolean, byte, short, integer, date   4 bytes (false/true = 0/1, date = days since 1970-01-01)
    long, timestamp, timestamp_ntz        8 bytes (timestamps = microseconds since 1970-01-01)
    interval day to second, its parts     8 bytes (microseconds)
    float, double                         4, 8 bytes IEEE 754, -0.0 as 0.0, one NaN
    string                                UTF-8 bytes
    binary                                the bytes
    decimal(p <= 18, s)                   8 bytes, the unscaled value
    decimal(p > 18, s)                    the unscaled value, two's complement, big endian, shortest
    struct                                the fields, each in turn, like columns
    array                                 the elements, each in turn, like columns

`key group = hash mod max parallelism` (mod never negative). Source of the algorithm: XXH64 of Yann
Collet, chained as in Spark's `XxHash64` expression; golden values pin the hash in the tests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

SEED = 42
HASHABLE_TYPES = (
    *("boolean", "byte", "short", "integer", "date", "long", "timestamp", "timestamp_ntz"),
    *("float", "double", "string", "binary"),
)
"""The names of the types that can be keys, except decimals and intervals."""

_OTHERS = re.compile(r"decimal\(.*|interval (day|hour|minute|second)( to (hour|minute|second))?")

KeyType = str | Mapping[str, Any]
"""A type in Spark's JSON form: a name, or the description of a struct or an array."""


def is_hashable_type(key_type: KeyType) -> bool:
    """Return True if a column of this type (Spark's JSON form) can be part of a key."""
    if isinstance(key_type, Mapping):
        if key_type["type"] == "array":
            return is_hashable_type(key_type["elementType"])
        is_struct = key_type["type"] == "struct"
        return is_struct and all(is_hashable_type(field["type"]) for field in key_type["fields"])
    return key_type in HASHABLE_TYPES or _OTHERS.fullmatch(key_type) is not None
