"""Equal keys for Spark are one key of broadcast state."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from spark_state.operator_state.broadcast_state import (
    BroadcastOperatorState,
    broadcast_item_type,
)
from spark_state.operator_state.meta_info import OperatorStateMetaInfo
from spark_state.operator_state.operator_state_backend import OperatorStateBackend

POINT = pa.struct([("x", pa.float64()), ("label", pa.string())])
KEYS: dict[str, tuple[pa.Schema, Any]] = {
    "a double": (pa.schema([("k", pa.float64())]), lambda number: (number,)),
    "a float": (pa.schema([("k", pa.float32())]), lambda number: (number,)),
    "beside others": (
        pa.schema([("name", pa.string()), ("k", pa.float64())]),
        lambda number: ("a", number),
    ),
    "nested": (pa.schema([("k", POINT)]), lambda number: ((number, "a"),)),
    "nested twice": (
        pa.schema([("k", pa.struct([("p", POINT)]))]),
        lambda number: (((number, "a"),),),
    ),
}
VALUES = pa.schema([("v", pa.int64())])


def other_nan() -> float:
    """Return a new NaN object."""
    return float("nan")


@pytest.mark.parametrize("kind", KEYS)
def test_nans_are_one_key_and_zeros_of_both_signs_are_one_also_after_a_restore(kind: str) -> None:
    schema, key = KEYS[kind]
    backend = OperatorStateBackend()
    state = backend.broadcast_state("rules", schema, VALUES)
    for number in (*(other_nan() for _ in range(1000)), 1.0, -0.0):
        state.put(key(number), (7,))
    data = backend.snapshot().to_bytes()
    restored = [OperatorStateBackend.restore([data] * 2, subtask, 3) for subtask in range(3)]
    for each in (backend, *restored):
        state = each.broadcast_state("rules", schema, VALUES)
        for number in (other_nan(), 0.0):
            state.put(key(number), (8,))
        assert [value for _, value in state.items()] == [(8,), (7,), (8,)]
        assert state.get(key(-0.0)) == state.get(key(other_nan())) == (8,)
        assert "-0.0" not in repr(state.items())
        state.remove(key(other_nan()))
        assert len(state.items()) == 2


def test_a_state_that_grew_by_nans_is_one_key_again_once_it_is_restored() -> None:
    """The last value put counts."""
    schema, key = KEYS["nested"]
    item_type = broadcast_item_type(pa.struct(list(schema)), pa.struct(list(VALUES)))
    items = [(key(other_nan()), (number,)) for number in range(5)]
    state = BroadcastOperatorState(OperatorStateMetaInfo("rules", "broadcast", item_type), items)
    assert state.get(key(math.nan)) == (4,)
    assert len(state.items()) == 1


def test_values_keep_their_nans_and_zeros() -> None:
    values = pa.schema([("v", pa.float64())])
    state = OperatorStateBackend().broadcast_state("rules", pa.schema([("k", pa.int64())]), values)
    state.put((1,), (-0.0,))
    assert repr(state.get((1,))) == "(-0.0,)"
