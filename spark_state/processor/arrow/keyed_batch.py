"""Input of an ArrowStatefulProcessor: rows of many keys, and the keys for the calls of states.

rows    sorted by key            a a a b c c
keys    each key once            a b c
counts  number of a key's rows   3 1 2
starts  first row of a key       0 3 4
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from spark_state.errors import StateValueError
from spark_state.keyed_state.current_key import Key
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.processor.input.key_grouping import KeyedInput

# The type stubs of pyarrow.compute reject valid arguments, such as an array of any type.
pc: Any = pyarrow.compute


class Keys:
    """Keys of a subtask, in any order. A key may occur several times.

    Get keys from a KeyedBatch or from ExpiredTimers, because a subtask has states of its own keys
    only.
    """

    def __init__(self, columns: KeyColumns, keys: list[Key], key_groups: list[int]) -> None:
        self._columns = columns
        self._keys = keys
        self._key_groups = key_groups

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Return the keys as tuples, in the form that handleInputRows gets."""
        return iter(self._columns.all_shown(self._keys))

    @cached_property
    def table(self) -> pa.Table:
        """The key columns under the grouping names; one row per key."""
        arrays = self._columns.to_arrow(self._keys)
        return pa.table(arrays, names=list(self._columns.names))

    def take(self, indexes: Any) -> Keys:
        """Return the keys at the positions `indexes`, an array of integers. The first key is at 0.
        Raises ValueError for a position without a key, and for other types than integers."""
        places = np.asarray(indexes)
        if len(places) and (
            places.dtype.kind not in "iu" or places.min() < 0 or places.max() >= len(self)
        ):
            raise ValueError(
                f"{indexes!r} are no places of {len(self)} keys: give whole numbers from 0, "
                "without nulls"
            )
        chosen = places.tolist()
        return Keys(
            self._columns,
            [self._keys[place] for place in chosen],
            [self._key_groups[place] for place in chosen],
        )

    def filter(self, mask: Any) -> Keys:
        """Return the keys where `mask`, an array of booleans, is true; null counts as false.

        Raises ValueError unless `mask` has one boolean for each key.
        """
        if isinstance(mask, pa.Array | pa.ChunkedArray):
            mask = pc.fill_null(mask, False)
        chosen = np.asarray(mask)
        if len(chosen) != len(self) or (len(chosen) and chosen.dtype != np.bool_):
            raise ValueError(
                f"the mask has {len(chosen)} values of {chosen.dtype} for {len(self)} keys: give a "
                "boolean for each key"
            )
        return self.take(np.flatnonzero(chosen))


def with_groups(keys: Any) -> Iterator[tuple[Key, int]]:
    """Return each key in the form that state tables take, with the key's key group. Raises
    StateValueError if `keys` is not of class Keys."""
    if not isinstance(keys, Keys):
        raise StateValueError(
            "states are asked with keys of a batch or of timers, such as batch.keys, not with a "
            f"{type(keys).__name__}"
        )
    return zip(keys._keys, keys._key_groups, strict=True)


@dataclass(frozen=True)
class KeyedBatch:
    """All rows of some keys, sorted by key.

    `rows`: a pyarrow Table with the columns of the grouped DataFrame. `keys`: the keys in Spark's
    order, each once. `counts`: number of rows of each key, int64.
    """

    rows: pa.Table
    keys: Keys
    counts: pa.Int64Array

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """The first row of each key, in the form that `numpy.ufunc.reduceat` takes."""
        counts = self.counts.to_numpy()
        starts: npt.NDArray[np.int64] = np.cumsum(counts) - counts
        return starts

    @cached_property
    def key_index(self) -> npt.NDArray[np.int64]:
        """For each row, the position of the row's key in `keys`."""
        return np.repeat(np.arange(len(self.keys)), self.counts.to_numpy())

    def keys_of_rows(self) -> Keys:
        """Return the key of each row."""
        return self.keys.take(self.key_index)

    def by_key(self, columns: pa.Table) -> pa.ListArray[Any]:
        """Group the rows of `columns` by key; return a list of structs for each key. `columns`: a
        Table with one row for each row of the batch.

        Raises ValueError if `columns` is no Table or has another number of rows.
        """
        if not isinstance(columns, pa.Table):
            raise ValueError(
                "give a Table of the elements' columns, such as batch.rows.select([…]), not a "
                f"{type(columns).__name__}"
            )
        if columns.num_rows != self.rows.num_rows:
            raise ValueError(
                f"{columns.num_rows} rows were given for a batch of {self.rows.num_rows}"
            )
        offsets = pa.array([*self.starts.tolist(), columns.num_rows], pa.int32())
        structs: Any = columns.to_struct_array()
        if isinstance(structs, pa.ChunkedArray):
            structs = structs.combine_chunks()
        return pa.ListArray.from_arrays(offsets, structs)


@dataclass(frozen=True, slots=True)
class ExpiredTimers:
    """Due timers. `keys`: the key of each timer. `times_ms`: the time of each timer, int64, in
    milliseconds since 1970. The earliest timer comes first; timers of the same time are in the
    order of the keys. A key with several due timers occurs several times."""

    keys: Keys
    times_ms: pa.Int64Array


def keyed_batch(keyed: KeyedInput, names: Sequence[str], columns: KeyColumns) -> KeyedBatch:
    """Return the rows and keys of a grouped input as a batch."""
    return KeyedBatch(
        keyed.rows.rename_columns(list(names)),
        Keys(columns, keyed.keys, keyed.key_groups),
        pa.array(keyed.counts, pa.int64()),
    )
