"""Keys as hashes, to find rows again. Pure.

Equal keys have equal hashes; different keys may have equal hashes, too. So a lookup by hash finds
at least the rows of the wanted keys, and perhaps more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]

_WORD_BYTES = 8
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)
_NULL = np.uint64(0x5851F42D4C957F2D)

_SIEVE_PLACES = 8
_MOST_PLACES = 1 << 26


def key_hashes(rows: pa.Table, key_names: Sequence[str]) -> Hashes:
    """Hash the key columns of each row."""
    hashes = np.zeros(rows.num_rows, np.uint64)
    for name in key_names:
        column: Any = rows[name]
        parts = [_column_hashes(chunk) for chunk in column.chunks]
        hashes = _mixed(hashes, np.concatenate([np.empty(0, np.uint64), *parts]))
    return hashes


@dataclass(frozen=True, slots=True)
class KeySieve:
    """Filter for the rows of some keys. At most about one in `_SIEVE_PLACES` rows of other keys
    passes, too; more if there are more than eight million keys, because memory is limited. `flags`:
    true at the places that belong to the hashes of the keys."""

    key_names: tuple[str, ...]
    flags: npt.NDArray[np.bool_]

    @classmethod
    def of_keys(cls, rows: pa.Table, key_names: tuple[str, ...]) -> Self:
        """The sieve for the keys of `rows`."""
        places = min(_SIEVE_PLACES * rows.num_rows, _MOST_PLACES)
        sieve = cls(key_names, np.zeros(1 << places.bit_length(), np.bool_))
        sieve.flags[sieve._places(rows)] = True
        return sieve

    def passing(self, rows: pa.Table) -> pa.Table:
        """The rows of `rows` that pass the filter, in the same order."""
        return rows.filter(pa.array(self.flags[self._places(rows)]))

    def _places(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        hashes = key_hashes(rows, self.key_names)
        return (hashes & np.uint64(len(self.flags) - 1)).view(np.int64)


def _column_hashes(array: Any) -> Hashes:
    """Hash the values of an array. All nulls have the same hash."""
    hashes = _value_hashes(array)
    if array.null_count:
        hashes = np.where(array.is_valid().to_numpy(zero_copy_only=False), hashes, _NULL)
    return hashes


def _value_hashes(array: Any) -> Hashes:
    arrow_type = array.type
    if pa.types.is_struct(arrow_type):
        hashes = np.zeros(len(array), np.uint64)
        for values in array.flatten():
            hashes = _mixed(hashes, _column_hashes(values))
        return hashes
    if pa.types.is_list(arrow_type):
        return _list_hashes(array)
    if pa.types.is_string(arrow_type) or pa.types.is_binary(arrow_type):
        return _bytes_hashes(array)
    if pa.types.is_floating(arrow_type):
        # Equal values need equal bits: adding 0.0 turns -0.0 into 0.0, and all NaNs become 1.0.
        values = array.cast(pa.float64()).fill_null(0.0).to_numpy() + 0.0
        return np.where(np.isnan(values), 1.0, values).view(np.uint64)
    if pa.types.is_decimal128(arrow_type):
        words = np.frombuffer(array.buffers()[1], np.uint64).reshape(-1, 2)
        words = words[array.offset : array.offset + len(array)]
        return _mixed(words[:, 0], words[:, 1])
    if pa.types.is_boolean(arrow_type) or pa.types.is_integer(arrow_type):
        return _numbers(array)
    if pa.types.is_temporal(arrow_type) and not pa.types.is_interval(arrow_type):
        return _numbers(array.view(pa.int32() if arrow_type.bit_width == 32 else pa.int64()))
    return np.zeros(len(array), np.uint64)


def _list_hashes(array: Any) -> Hashes:
    """Hash each list: hash every element together with its position, add up these hashes, and hash
    the sum together with the length of the list."""
    array = array.fill_null([])
    offsets = array.offsets.to_numpy().astype(np.int64)
    starts, lengths = offsets[:-1], np.diff(offsets)
    places = np.arange(offsets[-1] - offsets[0]) + offsets[0] - np.repeat(starts, lengths)
    elements = _mixed(_seeds(places), _column_hashes(array.flatten()))
    before = np.concatenate([np.zeros(1, np.uint64), np.cumsum(elements, dtype=np.uint64)])
    sums = before[offsets[1:] - offsets[0]] - before[starts - offsets[0]]
    return _mixed(_seeds(lengths), sums)


def _seeds(numbers: npt.NDArray[np.int64]) -> Hashes:
    return _mixed(np.full(len(numbers), _NULL), numbers.astype(np.uint64))


def _numbers(array: Any) -> Hashes:
    numbers: npt.NDArray[np.int64] = array.cast(pa.int64()).fill_null(0).to_numpy()
    return numbers.view(np.uint64)


def _bytes_hashes(array: Any) -> Hashes:
    """Hash the first word of all values, then the second word of the longer values, and so on."""
    _, offset_buffer, data = array.buffers()
    if not len(array):
        return np.empty(0, np.uint64)
    offsets = np.frombuffer(offset_buffer, np.int32)[array.offset : array.offset + len(array) + 1]
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets)
    text = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    # words[i] are the eight bytes from byte i on, because a value may begin at any byte. The last
    # word of a value may reach into the next value, and for the last value into the padding:
    #
    #     bytes      a b c d e f g h i|J K L M N O P      a value of nine bytes, and the next value
    #     its words  a b c d e f g h
    #                                i J K L M N O P      shifted left by 7 bytes: the i alone
    #
    # Words are little-endian, so a shift to the left drops the later bytes.
    padded = np.concatenate([text[: offsets[-1]], np.zeros(_WORD_BYTES, np.uint8)])
    words = np.ndarray(len(padded) - _WORD_BYTES + 1, np.dtype("<u8"), padded, strides=(1,))
    # With the length, a text and the same text with zero bytes behind it have different hashes.
    hashes = _mixed(np.zeros(len(array), np.uint64), lengths.astype(np.uint64))
    longer = np.flatnonzero(lengths > 0)
    for place in range(0, int(lengths.max()), _WORD_BYTES):
        longer = longer[lengths[longer] > place]
        beyond = np.maximum(_WORD_BYTES - (lengths[longer] - place), 0).astype(np.uint64)
        own_words = words[starts[longer] + place] << (beyond * np.uint64(8))
        hashes[longer] = _mixed(hashes[longer], own_words)
    return hashes


def _mixed(hashes: Hashes, values: Hashes) -> Hashes:
    # Each step can be undone (an odd factor, a shift by half the bits), so different values keep
    # different hashes: keys of a single number do not collide.
    mixed = (hashes ^ values) * _PRIME
    mixed ^= mixed >> _SHIFT
    mixed *= _PRIME
    mixed ^= mixed >> _SHIFT
    return mixed
