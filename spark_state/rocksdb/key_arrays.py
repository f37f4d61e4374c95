"""Conversion of keys to bytes, for many rows at once, from the Arrow columns of a file. Pure.

The bytes are the same as in `ordered_bytes`, which describes the format. Only the most common types
of keys are supported: text, binary, whole numbers and timestamps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

# The type stubs of pyarrow.compute reject valid arguments, such as scalars among arrays.
pc: Any = pyarrow.compute

_NULL, _VALUE, _END = (pa.scalar(data, pa.binary()) for data in (b"\x00", b"\x01", b"\x00\x00"))
_TEXTS = pa.string(), pa.large_string(), pa.binary(), pa.large_binary()
_NOTHING = pa.scalar(b"", pa.binary())
_SIGN = np.int64(-(1 << 63))


def can_be_encoded(arrow_type: Any) -> bool:
    """Return True if `encoded_keys` takes a column of this type."""
    types = pa.types
    return (
        _is_text(arrow_type)
        or types.is_signed_integer(arrow_type)
        or (types.is_timestamp(arrow_type) and arrow_type.unit == "us")
    )


def encoded_keys(key_groups: pa.Array[Any], columns: Sequence[pa.Array[Any]]) -> list[bytes]:
    """Return for each key the bytes with which its rows begin, the same as `RowKeys.of_key`. Key
    number i has key group `key_groups[i]` and the values with index i of all columns. All columns
    must satisfy `can_be_encoded`."""
    assert all(can_be_encoded(column.type) for column in columns)
    parts: list[Any] = [_fixed(key_groups.to_numpy().astype(">u2"))]
    for column in columns:
        values = [_text(column), _END] if _is_text(column.type) else [_whole_number(column)]
        if column.null_count:
            value = pc.binary_join_element_wise(_VALUE, *values, _NOTHING)
            parts.append(pc.fill_null(value, _NULL))
        else:
            parts += [_VALUE, *values]
    rows: list[bytes] = pc.binary_join_element_wise(*parts, _NOTHING).to_pylist()
    return rows


def _is_text(arrow_type: Any) -> bool:
    return arrow_type in _TEXTS


def _text(column: Any) -> Any:
    """Return the bytes of texts, with 00 replaced by 00 FF. The bytes 00 00 that end a text in a
    key are not added."""
    value = column.cast(pa.binary())
    data = value.buffers()[2]
    if data is None or np.frombuffer(data, np.uint8).all():
        return value
    return pc.replace_substring(value, b"\x00", b"\x00\xff")


def _whole_number(column: Any) -> Any:
    """Return the bytes of whole numbers, null for null."""
    numbers = column.cast(pa.int64())
    flipped = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False) ^ _SIGN
    return pc.if_else(pc.is_valid(column), _fixed(flipped.astype(">i8")), None)


def _fixed(numbers: Any) -> Any:
    """Return a binary array with the bytes of each number of a numpy array."""
    of_one = pa.binary(numbers.dtype.itemsize)
    data = [None, pa.py_buffer(numbers.tobytes())]
    return pa.Array.from_buffers(of_one, len(numbers), data).cast(pa.binary())
