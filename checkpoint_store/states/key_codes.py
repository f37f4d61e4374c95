"""Keys as numbers, by which rows are grouped. Pure.

Null is the same as null, NaN as NaN. Columns are dictionary-encoded, so no two keys get one number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

# The stubs of the compute functions do not take what the functions take, such as chunked arrays.
pc: Any = pyarrow.compute


def key_codes(rows: pa.Table, key_names: Sequence[str]) -> npt.NDArray[np.int64]:
    """A number for each row, the same for the same key; 0, 1 … in the order of appearance."""
    codes = np.zeros(rows.num_rows, np.int64)
    for place, name in enumerate(key_names):
        next_codes = value_codes(rows[name])
        if place:
            # The two codes are digits of one number, so different pairs are different numbers.
            # Encoded again, the numbers stay below the number of rows, and its square fits in 64
            # bits. They keep their order too: encoding numbers values as they appear.
            together = codes * (next_codes.max(initial=0) + 1) + next_codes
            next_codes = value_codes(pa.chunked_array([pa.array(together)]))
        codes = next_codes
    return codes


def value_codes(column: Any) -> npt.NDArray[np.int64]:
    """The same number for the same value of a column, a ChunkedArray."""
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    parts = [chunk.indices.to_numpy() for chunk in encoded.chunks]
    return np.concatenate([np.empty(0, np.int64), *parts], dtype=np.int64)
