"""Stable hash from a key to a key group, the same in the JVM and in Python.

A key is the tuple of its grouping columns. The hash is Spark's `xxhash64(columns…)`: XXH64 with
seed 42. Each column is hashed with the hash of the columns before as seed; a null leaves the hash
unchanged. A column is hashed as these bytes, little endian:

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

import datetime
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import xxhash

from spark_state.errors import KeyGroupError

SEED = 42
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_EPOCH_NAIVE = datetime.datetime(1970, 1, 1)
_EPOCH_UTC = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)

KeyType = str | Mapping[str, Any]
"""A type in Spark's JSON form: a name, or the description of a struct or an array."""

_Hash = Callable[[Any, int], int]
_Pack = Callable[[Any], bytes]
_pack_int: _Pack = struct.Struct("<i").pack
_pack_long: _Pack = struct.Struct("<q").pack
_pack_float: _Pack = struct.Struct("<f").pack
_pack_double: _Pack = struct.Struct("<d").pack


def _float_bytes(value: float) -> bytes:
    return _pack_float(math.nan if math.isnan(value) else value + 0.0)


def _double_bytes(value: float) -> bytes:
    return _pack_double(math.nan if math.isnan(value) else value + 0.0)


def _date_bytes(value: datetime.date) -> bytes:
    return _pack_int(value.toordinal() - _EPOCH_DAY)


def _timestamp_bytes(value: datetime.datetime) -> bytes:
    return _pack_long((value.astimezone(datetime.UTC) - _EPOCH_UTC) // _MICROSECOND)


def _timestamp_ntz_bytes(value: datetime.datetime) -> bytes:
    return _pack_long((value - _EPOCH_NAIVE) // _MICROSECOND)


def _interval_bytes(value: datetime.timedelta) -> bytes:
    return _pack_long(value // _MICROSECOND)


_PARTS_OF_DAYS = ("day", "hour", "minute", "second")
_INTERVALS = {
    f"interval {first}" if first == last else f"interval {first} to {last}": _interval_bytes
    for place, first in enumerate(_PARTS_OF_DAYS)
    for last in _PARTS_OF_DAYS[place:]
}

_BYTES_OF: dict[str, Callable[[Any], bytes]] = {
    "boolean": _pack_int,
    "byte": _pack_int,
    "short": _pack_int,
    "integer": _pack_int,
    "date": _date_bytes,
    "long": _pack_long,
    "timestamp": _timestamp_bytes,
    "timestamp_ntz": _timestamp_ntz_bytes,
    "float": _float_bytes,
    "double": _double_bytes,
    "string": str.encode,
    "binary": bytes,
}


def _decimal_bytes(precision: int, scale: int) -> Callable[[Any], bytes]:
    def to_bytes(value: Decimal) -> bytes:
        sign, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        magnitude = int("".join(map(str, digits)) or "0")
        shift = exponent + scale
        unscaled: int = magnitude * 10**shift if shift >= 0 else magnitude // 10**-shift
        unscaled = -unscaled if sign else unscaled
        if precision <= 18:
            return _pack_long(unscaled)
        return shortest_bytes(unscaled)

    return to_bytes


def shortest_bytes(unscaled: int) -> bytes:
    """Return the bytes of the unscaled value of a decimal with a precision above 18."""
    bits = unscaled.bit_length() if unscaled >= 0 else (~unscaled).bit_length()
    return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)


def hash_bytes(values: Iterable[bytes], seeds: Iterable[int]) -> Iterator[int]:
    """Return the hash of each value with its own seed: one column of many keys."""
    return map(xxhash.xxh64_intdigest, values, seeds)


def _hash_of(key_type: KeyType) -> _Hash:
    """Return the function that updates a hash with a value of this type. The value is not None."""
    if isinstance(key_type, Mapping) and key_type["type"] == "struct":
        return _hash_of_struct(key_type["fields"])
    if isinstance(key_type, Mapping) and key_type["type"] == "array":
        return _hash_of_array(key_type["elementType"])
    to_bytes = _bytes_of(str(key_type))
    return lambda value, seed: xxhash.xxh64_intdigest(to_bytes(value), seed)


def _hash_of_struct(fields: Sequence[Mapping[str, Any]]) -> _Hash:
    hashes = [(field["name"], _hash_of(field["type"])) for field in fields]

    def hash_struct(value: Any, seed: int) -> int:
        by_name = isinstance(value, Mapping)
        if not by_name and len(value) != len(hashes):
            raise TypeError(f"{len(value)} fields instead of {len(hashes)}")
        for index, (name, hash_field) in enumerate(hashes):
            field = value[name] if by_name else value[index]
            seed = seed if field is None else hash_field(field, seed)
        return seed

    return hash_struct


def _hash_of_array(element_type: KeyType) -> _Hash:
    hash_element = _hash_of(element_type)

    def hash_array(value: Any, seed: int) -> int:
        for element in value:
            seed = seed if element is None else hash_element(element, seed)
        return seed

    return hash_array


def _bytes_of(type_name: str) -> Callable[[Any], bytes]:
    if type_name.startswith("decimal("):
        precision, scale = type_name[len("decimal(") : -1].split(",")
        return _decimal_bytes(int(precision), int(scale))
    try:
        return {**_BYTES_OF, **_INTERVALS}[type_name]
    except KeyError:
        raise KeyGroupError(
            f"a key column of type {type_name!r} has no stable hash and so no key group; group by "
            f"columns of type {', '.join(_BYTES_OF)}, decimal or interval day to second, or "
            "structs and arrays of these"
        ) from None


def is_hashable_type(key_type: KeyType) -> bool:
    """Return True if a column of this type (Spark's JSON form) can be part of a key."""
    if isinstance(key_type, Mapping):
        if key_type["type"] == "array":
            return is_hashable_type(key_type["elementType"])
        is_struct = key_type["type"] == "struct"
        return is_struct and all(is_hashable_type(field["type"]) for field in key_type["fields"])
    return key_type in _BYTES_OF or key_type in _INTERVALS or key_type.startswith("decimal(")


class KeyGroupAssignment:
    """Assignment of keys with fixed column types to key groups. `key_types`: types of the key
    columns in Spark's JSON form, in key order. `max_parallelism`: number of key groups."""

    def __init__(self, key_types: Sequence[KeyType], max_parallelism: int) -> None:
        self._hashes = tuple(map(_hash_of, key_types))
        self.max_parallelism = max_parallelism

    def hash(self, key: tuple[Any, ...]) -> int:
        """Return the unsigned 64-bit hash of a key. Raises KeyGroupError for a value of another
        type."""
        value = SEED
        for hash_column, column in zip(self._hashes, key, strict=True):
            if column is None:
                continue
            try:
                value = hash_column(column, value)
            except (struct.error, LookupError, TypeError, AttributeError, OverflowError) as error:
                raise KeyGroupError(f"key {key!r}: {column!r} cannot be hashed: {error}") from error
        return value

    def key_group(self, key: tuple[Any, ...]) -> int:
        """Return the key group of a key, in [0, max_parallelism)."""
        unsigned = self.hash(key)
        signed = unsigned - (1 << 64) if unsigned >> 63 else unsigned
        return signed % self.max_parallelism
