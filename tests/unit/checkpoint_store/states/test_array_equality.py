"""Equality of arrays: null equals null, NaN equals NaN, lists count in order, maps in any order."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_store.states.array_equality import same_values

NAN = math.nan
KEY = pa.struct([("ratio", pa.float64()), ("path", pa.list_(pa.int32()))])
MAP = pa.map_(KEY, pa.struct([("tags", pa.list_(pa.string()))]))
LIST = pa.list_(pa.struct([("ratio", pa.float64()), ("tags", pa.list_(pa.string()))]))


def key(ratio: float | None, path: list[int | None] | None) -> dict[str, Any]:
    return {"ratio": ratio, "path": path}


def item(*tags: str | None) -> dict[str, Any]:
    return {"tags": list(tags)}


A, B, C = key(NAN, [1, None]), key(None, []), key(None, None)

CASES: list[tuple[pa.DataType, Any, Any, bool]] = [
    (MAP, None, None, True),
    (MAP, None, [], False),
    (MAP, [], [], True),
    (MAP, [(A, item("x"))], [(A, item("x"))], True),
    (MAP, [(A, item("x"))], [(A, item("y"))], False),
    (MAP, [(A, item("x")), (B, item())], [(B, item()), (A, item("x"))], True),
    (MAP, [(A, item("x")), (B, item())], [(B, item("x")), (A, item())], False),
    (MAP, [(A, None), (B, None), (C, None)], [(C, None), (A, None), (B, None)], True),
    (MAP, [(B, None)], [(C, None)], False),
    (MAP, [(key(0.5, [1, 2]), None)], [(key(0.5, [2, 1]), None)], False),
    (MAP, [(A, item(None))], [(A, item())], False),
    (LIST, [key(NAN, None) | item("x")], [key(NAN, None) | item("x")], True),
    (LIST, [{"ratio": 1.0}, {"ratio": 2.0}], [{"ratio": 2.0}, {"ratio": 1.0}], False),
    (LIST, [{"ratio": 1.0}], [{"ratio": 1.0}, {"ratio": 1.0}], False),
    (LIST, [], None, False),
    (LIST, [None], [{"ratio": None, "tags": None}], False),
]


@pytest.mark.parametrize("arrow_type", [MAP, LIST])
def test_each_place_is_compared_with_its_own(arrow_type: pa.DataType) -> None:
    cases = [case for case in CASES if case[0] is arrow_type] * 2
    left, right = (pa.array([case[place] for case in cases], arrow_type) for place in (1, 2))
    expected = [case[3] for case in cases]
    assert same_values(left, right).tolist() == expected
    assert same_values(left.slice(3), right.slice(3)).tolist() == expected[3:]
    assert same_values(left[:0], right[:0]).tolist() == []
