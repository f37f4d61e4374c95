"""A mark of operator state shows later changes and can undo them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from spark_state.errors import StateValueError
from spark_state.operator_state.operator_state_backend import OperatorStateBackend

NUMBER = pa.schema([("n", pa.int64())])
NAME = pa.schema([("name", pa.string())])
BackendChange = Callable[[OperatorStateBackend], object]
Contents = tuple[list[tuple[int]], dict[tuple[str], tuple[int]]]


@pytest.fixture
def backend() -> OperatorStateBackend:
    backend = OperatorStateBackend()
    backend.list_state("numbers", NUMBER).update([(1,), (2,)])
    backend.broadcast_state("limits", NAME, NUMBER).put(("a",), (10,))
    return backend


def contents(backend: OperatorStateBackend) -> Contents:
    limits = backend.broadcast_state("limits", NAME, NUMBER)
    return backend.list_state("numbers", NUMBER).get(), dict(limits.items())


CHANGES: dict[str, BackendChange] = {
    "an item is added": lambda b: b.list_state("numbers", NUMBER).add((3,)),
    "items are added": lambda b: b.list_state("numbers", NUMBER).extend([(3,), (4,)]),
    "items are replaced": lambda b: b.list_state("numbers", NUMBER).update([(7,)]),
    "a list is cleared": lambda b: b.list_state("numbers", NUMBER).clear(),
    "a value is put": lambda b: b.broadcast_state("limits", NAME, NUMBER).put(("a",), (11,)),
    "a key is put": lambda b: b.broadcast_state("limits", NAME, NUMBER).put(("b",), (1,)),
    "a key is removed": lambda b: b.broadcast_state("limits", NAME, NUMBER).remove(("a",)),
    "a map is cleared": lambda b: b.broadcast_state("limits", NAME, NUMBER).clear(),
    "a state is deleted": lambda b: b.drop("numbers"),
    "a state is registered": lambda b: b.union_state("others", NUMBER),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_shows_and_can_be_undone_any_number_of_times(
    backend: OperatorStateBackend, change: BackendChange
) -> None:
    before, mark = contents(backend), backend.mark()
    for _ in range(3):
        assert not backend.has_changed_since(mark)
        change(backend)
        assert backend.has_changed_since(mark)
        backend.return_to(mark)
        assert contents(backend) == before
        assert backend.snapshot().names == ("numbers", "limits")


@pytest.mark.parametrize("second", CHANGES.values(), ids=CHANGES)
def test_changes_after_a_second_mark_leave_the_first_one_as_it_was(
    backend: OperatorStateBackend, second: BackendChange
) -> None:
    at_first, first = contents(backend), backend.mark()
    backend.list_state("numbers", NUMBER).add((3,))
    backend.broadcast_state("limits", NAME, NUMBER).put(("b",), (20,))
    at_second, mark = contents(backend), backend.mark()
    second(backend)
    backend.return_to(first)
    assert contents(backend) == at_first
    backend.return_to(mark)
    assert contents(backend) == at_second


def test_what_only_looks_at_a_state_changes_nothing(backend: OperatorStateBackend) -> None:
    mark = backend.mark()
    contents(backend)
    backend.broadcast_state("limits", NAME, NUMBER).remove(("none",))
    backend.snapshot().to_bytes()
    backend.broadcast_checksums()
    assert not backend.drop("none")
    assert not backend.has_changed_since(mark)


def test_an_unfit_item_adds_none_of_them(backend: OperatorStateBackend) -> None:
    mark = backend.mark()
    with pytest.raises(StateValueError):
        backend.list_state("numbers", NUMBER).extend([(3,), ("four",)])
    assert not backend.has_changed_since(mark)
