"""CRC-32C of the rows of the state store provider, all rows at once. Pure.

The checksum of a row covers the key's bytes, then the value's bytes; for a removed row the key
alone. Rows are whole words of 8 bytes. The checksum is continued word by word, with eight lookups
in tables of 256 numbers, one table for each byte of the word. Each lookup is made at once for all
rows that are long enough to have the word.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

CRC32C = "crc32c"

_POLYNOMIAL = 0x82F63B78
_ALL_BITS = 0xFFFFFFFF
_WORD_BYTES = 8


def crc32c_of_rows(keys: Any, values: Any) -> Any:
    """Compute the checksum of each row, as int32. `keys` and `values` are binary arrays; a null
    value stands for a removed row. Raises ValueError if a row is not a whole number of words."""
    sums = pa.repeat(pa.scalar(_ALL_BITS, pa.int64()), len(keys))
    for column in (keys, values):
        sums = _continued(sums, column)
    # The lower 32 bits as a signed number.
    inverted = pc.bit_wise_xor(sums, _ALL_BITS)
    return pc.subtract(inverted, pc.shift_left(pc.shift_right(inverted, 31), 32)).cast(pa.int32())


def _continued(sums: Any, column: Any) -> Any:
    """The checksums `sums`, continued over the words of a column. A null has no words."""
    _, offsets, data = column.buffers()
    ends: Any = pa.Array.from_buffers(pa.int32(), column.offset + len(column) + 1, [None, offsets])
    ends = ends.slice(column.offset).cast(pa.int64())
    starts = ends[:-1]
    # A null may take bytes.
    sizes = pc.if_else(column.is_valid(), pc.subtract(ends[1:], starts), 0)
    if pc.any(pc.not_equal(pc.bit_wise_and(pc.bit_wise_or(starts, sizes), 7), 0)).as_py():
        raise ValueError("a row of no whole number of words")
    bytes_ = data or pa.py_buffer(b"")
    words = pa.Array.from_buffers(pa.int64(), bytes_.size // _WORD_BYTES, [None, bytes_])
    # Rows by falling size: rows with a word left are always in front.
    order = pc.sort_indices(sizes, sort_keys=[("", "descending")])
    firsts, counts = (pc.shift_right(part.take(order), 3) for part in (starts, sizes))
    done, sums = [], sums.take(order)
    for place in range(counts[0].as_py() if len(counts) else 0):
        alive = pc.sum(pc.greater(counts, place)).as_py()
        done.append(sums[alive:])
        firsts, counts, sums = firsts[:alive], counts[:alive], sums[:alive]
        sums = _with_word(sums, words.take(pc.add(firsts, place)))
    in_order = pa.concat_arrays([sums, *reversed(done)])
    return in_order.take(pc.sort_indices(order))


def _with_word(sums: Any, words: Any) -> Any:
    mixed = pc.bit_wise_xor(words, sums)
    for place, table in enumerate(_tables()):
        index = pc.bit_wise_and(pc.shift_right(mixed, 8 * place), 0xFF)
        part = table.take(index)
        sums = part if place == 0 else pc.bit_wise_xor(sums, part)
    return sums


@cache
def _tables() -> tuple[Any, ...]:
    """One table for each byte of a word, first byte first. Entry `value` of a table is the effect
    on the checksum if the byte has this value."""
    last = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        last.append(value)
    tables = [last]
    while len(tables) < _WORD_BYTES:
        tables.append([last[value & 0xFF] ^ value >> 8 for value in tables[-1]])
    return tuple(pa.array(table, pa.int64()) for table in reversed(tables))
