"""Equal keys have equal hashes in every array."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_store.states.key_hashes import Hashes, KeySieve, key_hashes

TYPES: list[tuple[pa.DataType, Sequence[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [0, -1, 127]),
    (pa.int64(), [0, -1, 2**40, 2**63 - 1]),
    (pa.float32(), [0.5, -1.0, math.inf]),
    (pa.float64(), [0.0, 0.1, -1e300]),
    (pa.string(), ["", "a", "a\0", "12345678", "123456789", "12345678" * 3 + "x"]),
    (pa.binary(), [b"", b"\0", b"\0\0", b"12345678\0"]),
    (
        pa.decimal128(30, 2),
        [decimal.Decimal("1.25"), decimal.Decimal("-7"), decimal.Decimal(10**20)],
    ),
    (pa.date32(), [datetime.date(1970, 1, 1), datetime.date(2026, 1, 31)]),
    (pa.timestamp("us", "UTC"), [0, 1, 2**50]),
    (pa.timestamp("us"), [0, 5]),
    (pa.duration("us"), [1, 2]),
    (pa.time64("ns"), [1, 2]),
]


def hashes(*columns: Any) -> Hashes:
    names = [str(place) for place in range(len(columns))]
    return key_hashes(pa.table(list(columns), names), names)


@pytest.mark.parametrize(("arrow_type", "values"), TYPES, ids=lambda given: str(given)[:20])
def test_the_hash_of_a_value_is_the_same_in_any_array_and_another_of_another(
    arrow_type: pa.DataType, values: Sequence[Any]
) -> None:
    alone = [int(hashes(pa.array([value], arrow_type))[0]) for value in values]
    assert len(set(alone)) == len(values)
    some = pa.array([None, *values, None, *reversed(values)], arrow_type)
    (null,) = hashes(pa.array([None], arrow_type)).tolist()
    assert null not in alone
    for array in (some.slice(1), pa.chunked_array([some.slice(1, 2), some.slice(3)])):
        assert hashes(array).tolist() == [*alone, null, *reversed(alone)]


def test_structs_have_one_hash_if_all_their_fields_have() -> None:
    window = pa.struct([("start", pa.int64()), ("end", pa.int64())])
    values = [{"start": 0, "end": 1}, {"start": 1, "end": 0}, {"start": 0, "end": None}, None]
    alone = [int(hashes(pa.array([value], window))[0]) for value in values]
    assert len(set(alone)) == len(values)
    some = pa.array([None, *values], window).slice(1)
    assert hashes(some).tolist() == alone


def test_keys_that_are_the_same_though_their_bits_are_not_have_one_hash() -> None:
    nan = np.frombuffer(np.array([0x7FF8000000000001], np.uint64).tobytes(), np.float64)[0]
    hashed = hashes(pa.array([0.0, -0.0, math.nan, nan], from_pandas=False)).tolist()
    assert hashed[0] == hashed[1]
    assert hashed[2] == hashed[3]


def test_the_columns_of_a_key_count_in_order() -> None:
    hashed = hashes(pa.array([1, 2, 1, 2]), pa.array([2, 1, 1, 2]))
    assert len(set(hashed.tolist())) == 4


def test_lists_have_one_hash_if_they_have_the_same_elements_in_the_same_order() -> None:
    values = [[], [1], [1, None], [None, 1], [1, 2], [2, 1], [None], None, [3, 0], [0, 3]]
    kind = pa.list_(pa.int64())
    alone = [int(hashes(pa.array([value], kind))[0]) for value in values]
    assert len(set(alone)) == len(values)
    some = pa.array([[9, 9], None, *values, [7]], kind)
    assert hashes(some.slice(2, len(values))).tolist() == alone
    nested = pa.array([[[1], [2]], [[1, 2]], [[1], [2]], [None, [2]]])
    first, second, third, fourth = hashes(nested).tolist()
    assert first == third
    assert len({first, second, fourth}) == 3


def test_a_map_has_a_hash_and_no_columns_and_no_rows_have_none() -> None:
    maps = pa.array([[("a", 1)], [("b", 2)]], pa.map_(pa.string(), pa.int64()))
    assert len(set(hashes(maps).tolist())) == 1
    assert key_hashes(pa.table({"v": [1, 2]}), []).tolist() == [0, 0]
    assert hashes(pa.array([], pa.string())).tolist() == []
    assert hashes(pa.array([], pa.list_(pa.string()))).tolist() == []
    assert hashes(pa.chunked_array([], pa.int64())).tolist() == []


@given(st.lists(st.text(max_size=20) | st.none(), max_size=30), st.integers(0, 5))
def test_texts_are_told_apart_wherever_they_differ(texts: list[str | None], skipped: int) -> None:
    rows = pa.array(texts, pa.string()).slice(skipped)
    hashed = hashes(rows).tolist()
    assert len(set(hashed)) == len(set(rows.to_pylist()))


@pytest.mark.parametrize("count", [0, 1, 5_000])
def test_rows_of_the_keys_pass_the_sieve_and_few_others(count: int) -> None:
    rows = pa.table({"id": pa.array(range(20_000)), "name": ["a", "b"] * 10_000})
    sieve = KeySieve.of_keys(rows.slice(10_000, count), ("id", "name"))
    passing = sieve.passing(rows)["id"].to_pylist()
    assert set(range(10_000, 10_000 + count)) <= set(passing)
    assert passing == sorted(passing)
    assert len(passing) < count + (20_000 - count) / 4
