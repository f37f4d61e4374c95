"""Compares two Arrow arrays value by value, nested values as a whole. Pure, and vectorised.

Null equals null. Floats are equal if their bits are equal: NaN equals NaN with the same bits, and
0.0 differs from -0.0. Lists are equal if their elements are equal, in order; maps if their entries
are equal, in any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_store.states.key_codes import value_codes

_Numbers = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]
_INTEGERS: dict[int, pa.DataType] = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def same_values(left: Any, right: Any) -> _Flags:
    """Compare two arrays of the same type and length. True at each place where both values are
    equal."""
    valid = _valid(left) & _valid(right)
    if pa.types.is_struct(left.type):
        same = np.ones(len(left), np.bool_)
        for left_field, right_field in zip(left.flatten(), right.flatten(), strict=True):
            same &= same_values(left_field, right_field)
    elif pa.types.is_list(left.type) or pa.types.is_map(left.type):
        same = _same_collections(left, right, valid)
    elif pa.types.is_floating(left.type):
        bits = _INTEGERS[left.type.bit_width]
        same = same_values(left.view(bits), right.view(bits))
    elif _is_compared(left.type):
        same = pc.fill_null(pc.equal(left, right), False).to_numpy(zero_copy_only=False)
    else:
        codes = value_codes(pa.chunked_array([left, right]))
        same = codes[: len(left)] == codes[len(left) :]
    return np.where(valid, same, ~(_valid(left) | _valid(right)))


def _same_collections(left: Any, right: Any, valid: _Flags) -> _Flags:
    places = np.flatnonzero(valid)
    left, right = left.take(pa.array(places)), right.take(pa.array(places))
    lengths = np.diff(left.offsets.to_numpy())
    equally_long = lengths == np.diff(right.offsets.to_numpy())
    left, right = left.filter(pa.array(equally_long)), right.filter(pa.array(equally_long))
    places, lengths = places[equally_long], lengths[equally_long]
    same = np.zeros(len(valid), np.bool_)
    same[places] = True
    owners = np.repeat(places, lengths)
    of_maps = pa.types.is_map(left.type)
    parts = _entries_by_key(left, right, owners) if of_maps else [(left.flatten(), right.flatten())]
    for left_part, right_part in parts:
        same[owners[~same_values(left_part, right_part)]] = False
    return same


def _entries_by_key(left: Any, right: Any, owners: _Numbers) -> list[tuple[Any, Any]]:
    """Keys and items of maps. Maps with the same keys get their entries in the same order."""
    codes = value_codes(pa.chunked_array([left.keys, right.keys]))
    orders = [np.lexsort((part, owners)) for part in np.split(codes, 2)]
    ours, theirs = map(pa.array, orders)
    return [
        (left.keys.take(ours), right.keys.take(theirs)),
        (left.items.take(ours), right.items.take(theirs)),
    ]


def _is_compared(arrow_type: pa.DataType) -> bool:
    """True if pyarrow has `equal` for values of the type."""
    return not (pa.types.is_null(arrow_type) or pa.types.is_interval(arrow_type))


def _valid(array: Any) -> _Flags:
    flags: _Flags = pc.is_valid(array).to_numpy(zero_copy_only=False)
    return flags
