"""Rows of many keys in blocks of whole keys, for processors that get many rows in one call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from spark_state.processor.input.key_grouping import KeyedInput


@dataclass(frozen=True, slots=True)
class BlockSize:
    """The greatest number of rows and of bytes in a block. A key with more rows is a block of its
    own."""

    rows: int
    bytes: int

    def rows_of(self, table: pa.Table) -> int:
        """Return the greatest number of rows of `table` in one block; at least one."""
        limit = self.rows
        if table.num_rows and self.bytes < table.nbytes:
            limit = min(limit, self.bytes * table.num_rows // table.nbytes)
        return max(limit, 1)


def blocks(keyed: KeyedInput, size: BlockSize) -> Iterator[KeyedInput]:
    """Split `keyed` into blocks of whole keys, in the order of the keys."""
    limit = size.rows_of(keyed.rows)
    first_key = first_row = length = 0
    for index, count in enumerate(keyed.counts):
        if length and length + count > limit:
            yield _block(keyed, slice(first_key, index), first_row, length)
            first_key, first_row, length = index, first_row + length, 0
        length += count
    if length:
        yield _block(keyed, slice(first_key, None), first_row, length)


def _block(keyed: KeyedInput, keys: slice, first_row: int, length: int) -> KeyedInput:
    return KeyedInput(
        keyed.rows.slice(first_row, length),
        keyed.keys[keys],
        keyed.key_groups[keys],
        keyed.counts[keys],
    )
