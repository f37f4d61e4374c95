"""Rows in the order of their keys. Pure.

Rows are sorted by the hash of the key, because hashing keys is faster than numbering keys with
`key_codes`. Different keys rarely have the same hash. Only the rows of such keys are numbered with
`key_codes`, and sorted by number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkpoint_store.states.array_equality import same_values
from checkpoint_store.states.key_codes import key_codes
from checkpoint_store.states.key_hashes import Hashes, key_hashes

_Numbers = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


def rows_by_key(rows: pa.Table, key_names: Sequence[str]) -> tuple[_Numbers, _Flags]:
    """The places of the rows: all rows of a key together, in the order of `rows`; and a flag for
    each place, true at the first row of a key."""
    order, first = _sorted(key_hashes(rows, key_names))
    # Two neighbours with one hash and different keys: a group of rows that has several keys.
    mixed = ~first
    mixed[1:] &= ~_are_as_before(rows, key_names, order)
    if mixed.any():
        groups = np.cumsum(first)
        places = np.flatnonzero(np.isin(groups, groups[mixed]))
        some = order[places]
        codes = key_codes(rows.take(pa.array(some)), key_names)
        by_key = np.lexsort((some, codes, groups[places]))
        order[places] = some[by_key]
        first[places] = np.diff(codes[by_key], prepend=-1) != 0
    return order, first


def _sorted(hashes: Hashes) -> tuple[_Numbers, _Flags]:
    """Sort the places by hash; places with equal hashes stay in order. Return the sorted places,
    and a flag for each place, true at the first place of a hash.

    Each hash and its place are sorted as one number, which is faster: the place overwrites the
    lowest bits of the hash. So hashes that differ only in these bits count as equal.
    """
    places = np.arange(len(hashes), dtype=np.uint64)
    bits = np.uint64(len(hashes).bit_length())
    of_place = (np.uint64(1) << bits) - np.uint64(1)
    numbers = (hashes & ~of_place) | places
    numbers.sort()
    upper = numbers >> bits
    first = np.ones(len(numbers), np.bool_)
    first[1:] = upper[1:] != upper[:-1]
    return (numbers & of_place).astype(np.int64), first


def _are_as_before(rows: pa.Table, key_names: Sequence[str], order: _Numbers) -> _Flags:
    """For each row in `order` after the first: true if the row has the same key as the preceding
    row."""
    same = np.ones(max(len(order) - 1, 0), np.bool_)
    for name in key_names:
        column: Any = rows[name].take(pa.array(order)).combine_chunks()
        same &= same_values(column[1:], column[:-1])
    return same
