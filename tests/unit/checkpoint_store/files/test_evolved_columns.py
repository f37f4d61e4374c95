"""A file's columns are converted to the types of a later schema."""

from __future__ import annotations

import pyarrow as pa
import pytest

from checkpoint_store.files.evolved_columns import evolved

TOO_LARGE = 2**60 + 1


def test_what_a_slice_or_a_null_hides_need_not_fit() -> None:
    offsets, validity = pa.array([0, 1, 2, 3, 4], pa.int32()), pa.array([False, False, True, False])
    lists = pa.ListArray.from_arrays(offsets, pa.array([TOO_LARGE, 1, TOO_LARGE, 2]), mask=validity)
    doubles = pa.list_(pa.float64())
    assert evolved(lists.slice(1), doubles).to_pylist() == [[1.0], None, [2.0]]
    with pytest.raises(pa.ArrowInvalid):
        evolved(lists, doubles)


def test_lists_of_no_rows() -> None:
    assert evolved(pa.array([], pa.list_(pa.int32())), pa.list_(pa.int64())).to_pylist() == []
