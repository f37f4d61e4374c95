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
def test_a_nan_is_one_key_however_often_it_is_put(kind: str) -> None:
    schema, key = KEYS[kind]
    state = OperatorStateBackend().broadcast_state("rules", schema, VALUES)
    for number in range(1000):
        state.put(key(other_nan()), (number,))
    assert len(state.items()) == 1
    assert state.get(key(other_nan())) == (999,)
    state.remove(key(other_nan()))
    assert state.items() == []


@pytest.mark.parametrize("kind", KEYS)
def test_zeros_of_both_signs_are_one_key(kind: str) -> None:
    schema, key = KEYS[kind]
    state = OperatorStateBackend().broadcast_state("rules", schema, VALUES)
    state.put(key(-0.0), (1,))
    state.put(key(0.0), (2,))
    [(kept, value)] = state.items()
    assert (value, state.get(key(-0.0))) == ((2,), (2,))
    assert "-0.0" not in repr(kept)


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_it_is_one_key_after_a_restore_too(kind: str, parallelism: int) -> None:
    schema, key = KEYS[kind]
    backend = OperatorStateBackend()
    state = backend.broadcast_state("rules", schema, VALUES)
    for number in (other_nan(), -0.0, 1.0):
        state.put(key(number), (7,))
    data = backend.snapshot().to_bytes()
    for subtask in range(parallelism):
        restored = OperatorStateBackend.restore([data] * 2, subtask, parallelism)
        state = restored.broadcast_state("rules", schema, VALUES)
        assert state.get(key(other_nan())) == (7,)
        for _ in range(3):
            state.put(key(other_nan()), (8,))
            state.put(key(0.0), (8,))
        assert [value for _, value in state.items()] == [(8,), (8,), (7,)]


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
