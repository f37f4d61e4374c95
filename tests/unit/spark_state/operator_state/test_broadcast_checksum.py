"""Subtasks with the same broadcast state have the same checksum."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from spark_state.errors import BroadcastStateError
from spark_state.operator_state.broadcast_checksum import check_broadcast_agrees
from spark_state.operator_state.operator_state_backend import OperatorStateBackend

KEY = pa.schema([("key", pa.string()), ("number", pa.float64())])
VALUE = pa.schema(
    [
        ("limits", pa.map_(pa.string(), pa.list_(pa.int64()))),
        ("inner", pa.struct([("counts", pa.map_(pa.float64(), pa.int64()))])),
    ]
)
Entry = tuple[tuple[Any, ...], tuple[Any, ...]]
A: Entry = (("a", 1.5), ({"x": [1, 2], "y": []}, ({1.0: 1, math.nan: 2},)))
B: Entry = (("b", None), ({}, None))
C: Entry = ((None, math.nan), (None, (None,)))


def checksums_of(*entries: Entry) -> dict[str, str]:
    backend = OperatorStateBackend()
    state = backend.broadcast_state("rules", KEY, VALUE)
    for key, value in entries:
        state.put(key, value)
    return backend.broadcast_checksums()


def test_it_does_not_depend_on_the_order_in_which_keys_were_put() -> None:
    assert checksums_of(A, B, C) == checksums_of(C, A, B) == checksums_of(B, A, C, A)


def test_it_does_not_depend_on_the_order_of_the_maps_in_values() -> None:
    other = (A[0], ({"y": [], "x": [1, 2]}, ({math.nan: 2, 1.0: 1},)))
    assert checksums_of(A) == checksums_of(other)


@pytest.mark.parametrize(
    "other",
    [
        (("a", 1.5), ({"x": [2, 1], "y": []}, ({1.0: 1, math.nan: 2},))),
        (("a", 1.5), ({"x": [1, 2]}, ({1.0: 1, math.nan: 2},))),
        (("a", 1.5), ({"x": [1, 2], "y": None}, ({1.0: 1, math.nan: 2},))),
        (("a", 2.5), ({"x": [1, 2], "y": []}, ({1.0: 1, math.nan: 2},))),
        (("a", 1.5), None),
    ],
)
def test_another_entry_gives_another_checksum(other: Entry) -> None:
    entries = [B] if other[1] is None else [other, B]
    assert checksums_of(*entries) != checksums_of(A, B)


def test_it_is_the_same_after_a_restore() -> None:
    backend = OperatorStateBackend()
    state = backend.broadcast_state("rules", KEY, VALUE)
    for key, value in (A, B, C):
        state.put(key, value)
    again = OperatorStateBackend.restore([backend.snapshot().to_bytes()])
    assert again.broadcast_checksums() == backend.broadcast_checksums() != {}


def test_a_state_without_entries_has_none() -> None:
    assert checksums_of() == {}


def test_subtasks_that_hold_the_same_agree() -> None:
    check_broadcast_agrees([])
    check_broadcast_agrees([{"rules": "1", "limits": "2"}] * 3)


@pytest.mark.parametrize("other", [{"rules": "2"}, {}])
def test_a_difference_names_the_state_and_the_subtasks(other: dict[str, str]) -> None:
    first = {"rules": "1"}
    message = r"'rules' is not the same.*subtasks \[0, 2\] and subtasks \[1\] differ"
    with pytest.raises(BroadcastStateError, match=message):
        check_broadcast_agrees([first, other, first])
