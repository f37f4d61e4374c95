"""Different keys of Spark that cowstate would merge into one key are found."""

from __future__ import annotations

import math
import struct
from typing import Any

import pyarrow as pa
import pytest

from spark_state.spark.adoption.merged_keys import merged_key

DEEP = pa.struct([("s", pa.struct([("x", pa.float64()), ("n", pa.int32())]))])
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]


def deep(x: float | None, n: int = 1) -> dict[str, Any]:
    return {"s": {"x": x, "n": n}}


def merged(keys: list[Any], own_keys: list[Any]) -> tuple[Any, ...] | None:
    names = ["a"] * len(keys)
    texts = pa.chunked_array([names], pa.string())
    of_spark, own = (pa.chunked_array([values], DEEP) for values in (keys, own_keys))
    return merged_key([texts, of_spark], [texts, own])


def test_zeros_of_both_signs_become_one_key_which_is_named() -> None:
    keys = [deep(1.0), deep(-0.0), deep(0.0), deep(-0.0, 2)]
    own_keys = [deep(1.0), deep(0.0), deep(0.0), deep(0.0, 2)]
    assert merged(keys, own_keys) == ("a", deep(0.0))


def test_nans_of_several_bits_become_one_key() -> None:
    key = merged([deep(OTHER_NAN), deep(math.nan)], [deep(math.nan), deep(math.nan)])
    assert key is not None
    assert math.isnan(key[1]["s"]["x"])


@pytest.mark.parametrize(
    "keys",
    [
        [deep(-0.0), deep(-0.0), deep(1.0)],
        [deep(0.0), deep(0.0, 2), None, {"s": None}, deep(None)],
        [deep(-0.0), deep(0.0, 2)],
    ],
)
def test_keys_that_stay_apart_are_none(keys: list[Any]) -> None:
    in_one_form = [
        deep(0.0, key["s"]["n"]) if key and key["s"] and key["s"]["x"] == 0 else key for key in keys
    ]
    assert merged(keys, in_one_form) is None


def test_keys_without_floats_are_not_looked_at() -> None:
    texts = pa.chunked_array([["a", "a"]])
    assert merged_key([texts], [texts]) is None
