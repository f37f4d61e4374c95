"""Key groups of whole columns: the same as in `key_group_assignment`, for a batch at a time.

XXH64 of 4 or 8 bytes is a dozen operations on 64-bit numbers, so columns of fixed width are hashed
as arrays. The seed of a row is the row's hash so far, so the seeds are an array, too. Strings,
binaries and decimals above 18 digits are hashed value by value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_store.files.spark_schema import MAX_COMPACT_PRECISION, parse_spark_schema
from spark_state.errors import KeyGroupError
from spark_state.key_group_assignment import (
    SEED,
    KeyGroupAssignment,
    hash_bytes,
    shortest_bytes,
)

Hashes = npt.NDArray[np.uint64]

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)
_DECIMAL_WIDTH = 16


def key_groups_of(
    columns: Sequence[pa.Array[Any]], type_names: Sequence[str], max_parallelism: int
) -> npt.NDArray[np.int32]:
    """Return the key group of each row of the key columns, equal to `KeyGroupAssignment` bit for
    bit.

    `columns`: one or more columns of equal length, with the types of `spark_schema` or with types
    that can be cast. Raises KeyGroupError for a type without a stable hash and for a column of
    another type.
    """
    KeyGroupAssignment(type_names, max_parallelism)
    hashes = np.full(len(columns[0]), SEED, np.uint64)
    for column, type_name in zip(columns, type_names, strict=True):
        hashed = _hash(_of_type(column, type_name), hashes)
        if column.null_count:
            hashed = np.where(_mask(column.is_valid()), hashed, hashes)
        hashes = hashed
    return (hashes.view(np.int64) % np.int64(max_parallelism)).astype(np.int32)


def arrow_type_of(type_name: str) -> pa.DataType:
    """Return the Arrow type of a key column from the JSON name of the Spark type."""
    field = {"name": "key", "type": type_name, "nullable": True, "metadata": {}}
    schema = parse_spark_schema(json.dumps({"type": "struct", "fields": [field]}))
    return schema.fields[0][1].arrow


def with_one_nan_and_zero(column: Any) -> Any:
    """Normalise floating-point keys, an array or a chunked array, as Spark groups keys: -0.0 is
    0.0, and every NaN is the same."""
    column = pc.add(column, pa.scalar(0.0, column.type))
    nan = pa.scalar(float("nan"), column.type)
    return pc.if_else(pc.is_nan(column), nan, column)


def _of_type(column: pa.Array[Any], type_name: str) -> pa.Array[Any]:
    arrow_type = arrow_type_of(type_name)
    try:
        column = column if column.type == arrow_type else column.cast(arrow_type)
    except pa.ArrowException as error:
        raise KeyGroupError(
            f"a key column of type {type_name} cannot be hashed: its values are {column.type} in "
            f"Arrow, not {arrow_type} ({error})"
        ) from error
    if pa.types.is_floating(column.type):
        column = with_one_nan_and_zero(column)
    return column


def _hash(column: pa.Array[Any], seeds: Hashes) -> Hashes:
    arrow_type = column.type
    if pa.types.is_string(arrow_type) or pa.types.is_binary(arrow_type):
        texts = column.cast(pa.binary()).fill_null(b"").to_numpy(zero_copy_only=False)
        return np.fromiter(hash_bytes(texts, seeds.tolist()), np.uint64, len(column))
    if pa.types.is_decimal(arrow_type):
        if arrow_type.precision <= MAX_COMPACT_PRECISION:
            low_words = _values(column, np.dtype(np.uint64), _DECIMAL_WIDTH)[::2]
            return _hash_8_bytes(low_words, seeds)
        return np.fromiter(
            hash_bytes(_unscaled_bytes(column), seeds.tolist()), np.uint64, len(column)
        )
    if arrow_type.bit_width == 64:
        return _hash_8_bytes(_values(column, np.dtype(np.uint64), 8), seeds)
    if arrow_type.bit_width < 32:
        column = column.cast(pa.int32())
    return _hash_4_bytes(_values(column, np.dtype(np.uint32), 4), seeds)


def _unscaled_bytes(column: pa.Array[Any]) -> Iterator[bytes]:
    data = _values(column, np.dtype(np.uint8), _DECIMAL_WIDTH).tobytes()
    for start in range(0, len(data), _DECIMAL_WIDTH):
        value = data[start : start + _DECIMAL_WIDTH]
        yield shortest_bytes(int.from_bytes(value, "little", signed=True))


def _values(column: pa.Array[Any], as_type: np.dtype[Any], width: int) -> npt.NDArray[Any]:
    """Return the values, of `width` bytes each, as numbers. The number at a null is arbitrary."""
    count = len(column) * width // as_type.itemsize
    buffer = column.buffers()[1]
    if buffer is None:
        return np.zeros(count, as_type)
    return np.frombuffer(cast(Any, buffer), as_type, count, column.offset * width)


def _mask(column: pa.Array[Any]) -> npt.NDArray[np.bool_]:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.bool_)


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
