"""Rows of a key come together in their order, whatever the hashes of the keys are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_store.states import key_order
from checkpoint_store.states.key_hashes import Hashes, key_hashes
from checkpoint_store.states.key_order import rows_by_key

Key = tuple[int | None, float | None, str | None]

keys = st.tuples(
    st.sampled_from([None, 0, 1]), st.sampled_from([None, math.nan, 1.5]), st.sampled_from("ab")
)


def one_hash(rows: pa.Table, _: Sequence[str]) -> Hashes:
    return np.zeros(rows.num_rows, np.uint64)


def hashes_of_numbers(rows: pa.Table, _: Sequence[str]) -> Hashes:
    """Hashes that tell some of the keys apart."""
    return key_hashes(rows, ["number"])


@pytest.mark.parametrize("hashes", [key_hashes, hashes_of_numbers, one_hash])
def test_rows_of_a_key_are_together_in_their_order(
    hashes: Callable[[pa.Table, Sequence[str]], Hashes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_order, "key_hashes", hashes)

    @given(st.lists(keys, max_size=30))
    def sorts(drawn: list[Key]) -> None:
        columns: list[Any] = [[key[place] for key in drawn] for place in range(3)]
        types = pa.int64(), pa.float64(), pa.string()
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        names = ["number", "ratio", "text"]
        order, first = rows_by_key(pa.table(arrays, names), names)
        groups: list[list[int]] = []
        for place, is_first in zip(order.tolist(), first.tolist(), strict=True):
            if is_first:
                groups.append([])
            groups[-1].append(place)
        expected: dict[str, list[int]] = {}
        for place, key in enumerate(drawn):
            expected.setdefault(repr(key), []).append(place)
        assert sorted(groups) == sorted(expected.values())

    sorts()


def test_rows_without_key_columns_have_one_key() -> None:
    order, first = rows_by_key(pa.table({"value": [3, 1, 2]}), [])
    assert (order.tolist(), first.tolist()) == ([0, 1, 2], [True, False, False])
