"""Key groups of whole columns, see `key_group_assignment` for the hash.

XXH64 of 4 or 8 bytes is a dozen operations on 64-bit numbers, so columns of fixed width are hashed
as arrays. The seed of a row is the row's hash so far, so the seeds are an array, too. Strings,
binaries and decimals above 18 digits are hashed value by value. The fields of a struct are hashed
one after the other. Of a column of arrays, first the first elements of all arrays are hashed, then
all second elements, and so on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from checkpoint_store.files.spark_schema import MAX_COMPACT_PRECISION, parse_spark_schema
from spark_state.errors import KeyGroupError
from spark_state.key_group_assignment import HASHABLE_TYPES, SEED, KeyType, is_hashable_type

Hashes = npt.NDArray[np.uint64]

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)
_DECIMAL_WIDTH = 16


class KeyGroupAssignment:
    """Assignment of single keys with fixed column types to key groups. `key_types`: types of the
    key columns in Spark's JSON form, in key order. `max_parallelism`: number of key groups. Raises
    KeyGroupError for a type without a stable hash."""

    def __init__(self, key_types: Sequence[KeyType], max_parallelism: int) -> None:
        self._arrow_types = [*map(_checked_type, key_types)]
        self._key_types = key_types
        self._max_parallelism = max_parallelism

    def key_group(self, key: tuple[Any, ...]) -> int:
        """Return the key group of a key, in [0, max_parallelism). Raises KeyGroupError for a value
        of another type."""
        values = zip(key, self._arrow_types, strict=True)
        columns = [_column_of_one(value, arrow_type, key) for value, arrow_type in values]
        hashes = hashes_of(columns, self._key_types, 1)
        return int(_key_groups(hashes, self._max_parallelism)[0])


def _column_of_one(value: Any, arrow_type: pa.DataType, key: tuple[Any, ...]) -> pa.Array[Any]:
    try:
        column: pa.Array[Any] = pa.array([value], arrow_type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise KeyGroupError(f"key {key!r}: {value!r} cannot be hashed: {error}") from error
    if type(column[0].as_py()) is not type(value):
        raise KeyGroupError(f"key {key!r}: {value!r} cannot be hashed: it is no {arrow_type}")
    return column


def key_groups_of(
    columns: Sequence[pa.Array[Any]], key_types: Sequence[KeyType], max_parallelism: int
) -> npt.NDArray[np.int32]:
    """Return the key group of each row of the key columns.

    `columns`: one or more columns of equal length, with the Arrow types of `key_types` (see
    arrow_type_of) or with types that can be cast to these. Raises KeyGroupError for a type without
    a stable hash, and for a column that cannot be cast.
    """
    return _key_groups(hashes_of(columns, key_types, len(columns[0])), max_parallelism)


def _key_groups(hashes: Hashes, max_parallelism: int) -> npt.NDArray[np.int32]:
    return (hashes.view(np.int64) % np.int64(max_parallelism)).astype(np.int32)


def hashes_of(
    columns: Sequence[pa.Array[Any]], key_types: Sequence[KeyType], length: int
) -> Hashes:
    """Return the hash of each of `length` rows. Raises the errors of `key_groups_of`."""
    hashes = np.full(length, SEED, np.uint64)
    for column, key_type in zip(columns, key_types, strict=True):
        hashes = _updated(_of_type(column, key_type), hashes)
    return hashes


def _updated(column: Any, hashes: Hashes) -> Hashes:
    """Update the hash of each row with the value of a column. A null leaves the hash unchanged."""
    if pa.types.is_struct(column.type):
        for field in column.flatten():  # with nulls where the struct is null
            hashes = _updated(field, hashes)
        return hashes
    if pa.types.is_list(column.type):
        lengths = pc.list_value_length(column).fill_null(0).to_numpy()
        for index in range(lengths.max(initial=0)):
            rows = np.flatnonzero(lengths > index)
            elements = pc.list_element(column.take(pa.array(rows)), index)
            hashes[rows] = _updated(elements, hashes[rows])
        return hashes
    if pa.types.is_floating(column.type):
        column = with_one_nan_and_zero(column)
    hashed = _hash(column, hashes)
    if not column.null_count:
        return hashed
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), hashed, hashes)


def _checked_type(key_type: KeyType) -> pa.DataType:
    """Return the Arrow type of a key column. Raises KeyGroupError for a type without a stable
    hash."""
    if not is_hashable_type(key_type):
        raise KeyGroupError(
            f"a key column of type {key_type!r} has no stable hash and so no key group; group by "
            f"columns of type {', '.join(HASHABLE_TYPES)}, decimal or interval day to second, or "
            "structs and arrays of these"
        )
    return arrow_type_of(key_type)


def arrow_type_of(key_type: KeyType) -> pa.DataType:
    """Return the Arrow type of a key column from the Spark type in JSON form."""
    return _arrow_type_of(json.dumps(key_type))


@cache
def _arrow_type_of(key_type_json: str) -> pa.DataType:
    key_type = json.loads(key_type_json)
    field = {"name": "key", "type": key_type, "nullable": True, "metadata": {}}
    schema = parse_spark_schema(json.dumps({"type": "struct", "fields": [field]}))
    return schema.fields[0][1].arrow


def with_one_nan_and_zero(column: Any) -> Any:
    """Normalise floating-point keys, an array or a chunked array, as Spark groups keys: -0.0 is
    0.0, and every NaN is the same."""
    column = pc.add(column, pa.scalar(0.0, column.type))
    nan = pa.scalar(float("nan"), column.type)
    return pc.if_else(pc.is_nan(column), nan, column)


def _of_type(column: pa.Array[Any], key_type: KeyType) -> pa.Array[Any]:
    arrow_type = _checked_type(key_type)
    try:
        return column if column.type == arrow_type else column.cast(arrow_type)
    except pa.ArrowException as error:
        raise KeyGroupError(
            f"a key column of type {key_type} cannot be hashed: its values are {column.type} in "
            f"Arrow, not {arrow_type} ({error})"
        ) from error


def _hash(column: pa.Array[Any], seeds: Hashes) -> Hashes:
    arrow_type = column.type
    if pa.types.is_string(arrow_type) or pa.types.is_binary(arrow_type):
        texts = column.cast(pa.binary()).fill_null(b"").to_numpy(zero_copy_only=False)
        return _hash_bytes(texts, seeds)
    if pa.types.is_decimal(arrow_type):
        if arrow_type.precision <= MAX_COMPACT_PRECISION:
            low_words = _values(column, np.dtype(np.uint64), _DECIMAL_WIDTH)[::2]
            return _hash_8_bytes(low_words, seeds)
        return _hash_bytes(_unscaled_bytes(column), seeds)
    if arrow_type.bit_width == 64:
        return _hash_8_bytes(_values(column, np.dtype(np.uint64), 8), seeds)
    if arrow_type.bit_width < 32:
        column = column.cast(pa.int32())
    return _hash_4_bytes(_values(column, np.dtype(np.uint32), 4), seeds)


def _hash_bytes(values: Iterable[bytes], seeds: Hashes) -> Hashes:
    hashed = map(xxhash.xxh64_intdigest, values, seeds.tolist())
    return np.fromiter(hashed, np.uint64, len(seeds))


def _unscaled_bytes(column: pa.Array[Any]) -> Iterator[bytes]:
    data = _values(column, np.dtype(np.uint8), _DECIMAL_WIDTH).tobytes()
    for start in range(0, len(data), _DECIMAL_WIDTH):
        value = data[start : start + _DECIMAL_WIDTH]
        unscaled = int.from_bytes(value, "little", signed=True)
        bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
        yield unscaled.to_bytes(bits // 8 + 1, "big", signed=True)


def _values(column: pa.Array[Any], as_type: np.dtype[Any], width: int) -> npt.NDArray[Any]:
    """Return the values, of `width` bytes each, as numbers. The number at a null is arbitrary."""
    count = len(column) * width // as_type.itemsize
    buffer = column.buffers()[1]
    if buffer is None:
        return np.zeros(count, as_type)
    return np.frombuffer(cast(Any, buffer), as_type, count, column.offset * width)


def _hash_8_bytes(values: Hashes, seeds: Hashes) -> Hashes:
    hashes = seeds + (_PRIME_5 + np.uint64(8))
    hashes ^= _rotated(values * _PRIME_2, 31) * _PRIME_1
    return _avalanche(_rotated(hashes, 27) * _PRIME_1 + _PRIME_4)


def _hash_4_bytes(values: npt.NDArray[np.uint32], seeds: Hashes) -> Hashes:
    hashes = seeds + (_PRIME_5 + np.uint64(4))
    hashes ^= values.astype(np.uint64) * _PRIME_1
    return _avalanche(_rotated(hashes, 23) * _PRIME_2 + _PRIME_3)


def _rotated(values: Hashes, bits: int) -> Hashes:
    rotated: Hashes = (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))
    return rotated


def _avalanche(hashes: Hashes) -> Hashes:
    hashes ^= hashes >> np.uint64(33)
    hashes *= _PRIME_2
    hashes ^= hashes >> np.uint64(29)
    hashes *= _PRIME_3
    hashes ^= hashes >> np.uint64(32)
    return hashes
