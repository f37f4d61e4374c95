"""Equal keys have equal codes, and different keys have different codes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_store.states.key_codes import key_codes, value_codes

WINDOW = pa.struct([("start", pa.int64()), ("name", pa.string())])
NESTED = pa.struct([("windows", pa.list_(WINDOW)), ("weight", pa.float64())])
TYPES: list[tuple[pa.DataType, Sequence[Any]]] = [
    (pa.int64(), [1, 2, None]),
    (pa.string(), ["", "a", None]),
    (pa.float64(), [0.5, math.nan, None]),
    (WINDOW, [{"start": 1, "name": "a"}, {"start": 1, "name": None}, {"start": None}, None]),
    (pa.list_(pa.int64()), [[], [1], [1, 1], [None], None]),
    (pa.list_(WINDOW), [[], [{"start": 1, "name": "a"}], [None], None]),
    (NESTED, [{"windows": [{"start": 1}], "weight": math.nan}, {"windows": None}, None]),
    (pa.struct([]), [{}, None]),
    (pa.map_(pa.string(), pa.int64()), [[], [("a", 1)], [("a", None)], [("a", 1), ("b", 1)], None]),
]


@pytest.mark.parametrize(("arrow_type", "values"), TYPES, ids=lambda given: str(given)[:20])
@given(data=st.data())
def test_a_value_has_one_code_in_any_array(
    arrow_type: pa.DataType, values: Sequence[Any], data: st.DataObject
) -> None:
    places = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=12))
    cut = data.draw(st.integers(0, len(places)))
    # Chunks that begin inside an array.
    chunks = [
        pa.array([values[0], *(values[place] for place in part)], arrow_type).slice(1)
        for part in (places[:cut], places[cut:])
    ]
    codes = value_codes(pa.chunked_array(chunks, arrow_type)).tolist()
    order = [*dict.fromkeys(places)]
    assert codes == [order.index(place) for place in places]


def test_a_key_of_several_columns_is_one_as_a_whole() -> None:
    windows = [{"start": 1, "name": "a"}, {"start": 1, "name": "a"}, {"start": 2, "name": "a"}]
    rows = pa.table({"window": pa.array([*windows, None], WINDOW), "n": [1, 2, 1, 1]})
    assert key_codes(rows, ["window", "n"]).tolist() == [0, 1, 2, 3]
    assert key_codes(rows, ["window"]).tolist() == [0, 0, 1, 2]
    assert key_codes(rows, []).tolist() == [0, 0, 0, 0]
