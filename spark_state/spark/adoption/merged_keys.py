"""Finds keys of Spark's operator that would be one key on cowstate.

To Spark 0.0 and -0.0 are one key, and so are all NaNs. But inside structs Spark's store may have a
key for each form of such a number, if the forms come in different batches. Cowstate always has one
key. Arrays in keys are not checked: Spark's own operator in Python fails on arrays in keys. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute

from spark_state.keyed_state.key_columns import leaf_columns

# The type stubs of pyarrow.compute reject arguments that its functions take.
pc: Any = pyarrow.compute

_PLACE = "place"
_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def merged_key(of_spark: Sequence[Any], in_one_form: Sequence[Any]) -> tuple[Any, ...] | None:
    """Find a key that Spark stores as several keys and cowstate would store as one key. None if
    there is no such key.

    Both arguments have the chunked key columns of the same rows: `of_spark` in the form of Spark's
    store, `in_one_form` in the form in which hosts keep keys. Returns the key as in `in_one_form`.
    """
    leaves = leaf_columns(of_spark)
    if not any(leaf.type in _BITS for leaf in leaves):
        return None
    columns = [*map(_bits, leaves), *map(_bits, leaf_columns(in_one_form))]
    names = [f"leaf {index}" for index in range(len(columns))]
    own_names = names[len(leaves) :]
    places = pa.array(range(len(in_one_form[0])), pa.int64())
    rows: Any = pa.table([*columns, places], [*names, _PLACE])
    keys = rows.group_by(names).aggregate([(_PLACE, "min")])
    own_keys = keys.group_by(own_names).aggregate([(f"{_PLACE}_min", "min"), ([], "count_all")])
    merged = own_keys.filter(pc.greater(own_keys["count_all"], 1))
    if not merged.num_rows:
        return None
    place = merged[f"{_PLACE}_min_min"][0].as_py()
    return tuple(column[place].as_py() for column in in_one_form)


def _bits(leaf: Any) -> Any:
    """A column in which two numbers are equal only if their bits are equal."""
    whole = leaf.combine_chunks() if isinstance(leaf, pa.ChunkedArray) else leaf
    return whole.view(_BITS[whole.type]) if whole.type in _BITS else whole
