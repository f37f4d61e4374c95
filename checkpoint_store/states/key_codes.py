"""Keys as numbers, to group rows. Pure.

Equal keys get the same number, and different keys get different numbers. Null equals null, and NaN
equals NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def key_codes(rows: pa.Table, key_names: Sequence[str]) -> npt.NDArray[np.int64]:
    """Number the rows by key: equal keys have equal numbers, 0, 1 … in the order of appearance."""
    return _joined([value_codes(rows[name]) for name in key_names], rows.num_rows)


def value_codes(column: Any) -> npt.NDArray[np.int64]:
    """Number the values of a column, a ChunkedArray: equal values have equal numbers, 0, 1 … in the
    order of appearance. Structs are equal if all fields are equal, lists and maps if all elements
    are equal, in order."""
    if pa.types.is_struct(column.type):
        fields = [pa.chunked_array(parts) for parts in _fields(column)]
        return _joined(
            [value_codes(pc.is_valid(column)), *map(value_codes, fields)],
            len(column),
        )
    if pa.types.is_list(column.type) or pa.types.is_map(column.type):
        column = _elements_as_bytes(column)
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    parts = [chunk.indices.to_numpy() for chunk in encoded.chunks]
    return np.concatenate([np.empty(0, np.int64), *parts], dtype=np.int64)


def _joined(codes: Sequence[npt.NDArray[np.int64]], count: int) -> npt.NDArray[np.int64]:
    """Join the codes of each row to one code. Two rows have the same code if all their codes are
    equal."""
    joined = codes[0] if codes else np.zeros(count, np.int64)
    for next_codes in codes[1:]:
        # The two codes are the digits of one number, so different pairs make different numbers.
        # Encoding again keeps the numbers below the number of rows, whose square fits in 64 bits,
        # and in the order of appearance.
        together = joined * (next_codes.max(initial=0) + 1) + next_codes
        joined = value_codes(pa.chunked_array([pa.array(together)]))
    return joined


def _fields(column: Any) -> list[list[Any]]:
    """The chunks of each field of a struct; null where the struct is null."""
    chunks = column.chunks or [pa.array([], column.type)]
    return [list(parts) for parts in zip(*(chunk.flatten() for chunk in chunks), strict=True)]


def _elements_as_bytes(column: Any) -> Any:
    """The codes of the elements of each list, or of the entries of each map, joined to bytes."""
    # `take` copies the valid lists, so no hidden elements lie before, behind or between the lists.
    taken = column.take(pc.indices_nonzero(pc.is_valid(column))).combine_chunks()
    if pa.types.is_map(column.type):
        entries = (taken.keys, taken.items)
        codes = _joined(
            [value_codes(pa.chunked_array([part])) for part in entries], len(taken.keys)
        )
    else:
        codes = value_codes(pa.chunked_array([taken.flatten()]))
    places = taken.offsets.to_numpy()
    texts = iter([codes[start:end].tobytes() for start, end in pairwise(places - places[0])])
    is_valid = pc.is_valid(column).to_pylist()
    return pa.chunked_array(
        [pa.array([next(texts) if valid else None for valid in is_valid], pa.binary())]
    )
