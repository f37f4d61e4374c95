"""The marks in a store give every run its number.

tests/property/checkpoint_store/test_run_registration.py tests the interleavings.
"""

from __future__ import annotations

import pytest

from checkpoint_store.epochs import operator_layout as layout
from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.epochs.operator_layout import RunMark
from checkpoint_store.runs.run_registry import RunRegistry
from tests.support.stores.fake_object_store import DictObjectStore


def store_with(*marks: tuple[int, str, int]) -> DictObjectStore:
    """Make a store with marks (number, run id, level)."""
    objects = DictObjectStore()
    for number, run_id, level in marks:
        objects.put(str(RunMark(Run(number, run_id), level)), b"")
    return objects


def registry(objects: DictObjectStore) -> RunRegistry:
    return RunRegistry(objects)


@pytest.mark.parametrize(
    ("marks", "number"),
    [
        ([], None),
        ([(1, "other", 1), (1, "other", 2)], None),
        ([(1, "mine", 1)], None),
        ([(1, "mine", 1), (1, "mine", 2)], 1),
        ([(1, "mine", 1), (1, "other", 1), (1, "mine", 2)], None),
        ([(1, "mine", 1), (1, "other", 1), (1, "mine", 2), (1, "mine", 3)], 1),
        ([(1, "mine", 1), (1, "mine", 2), (2, "other", 1)], 1),
        (
            # The run "mine" lost number 1, and asked for 2.
            [(1, "mine", 1), (1, "a", 1), (1, "a", 2), (1, "a", 3), (2, "mine", 1), (2, "mine", 2)],
            2,
        ),
    ],
)
def test_marks_give_a_run_its_number(marks: list[tuple[int, str, int]], number: int | None) -> None:
    objects = store_with(*marks)
    before = set(objects.objects)
    run = registry(objects).registered("mine")
    assert run == (None if number is None else Run(number, "mine"))
    assert set(objects.objects) == before
    if number is not None:
        assert registry(objects).register("mine") == run


@pytest.mark.parametrize("marks", [[], [(1, "other", 1), (1, "other", 2)]])
def test_a_new_run_is_later_than_all_that_was_written(marks: list[tuple[int, str, int]]) -> None:
    objects = store_with(*marks)
    assert RunRegistry(objects, lambda: 7).register("mine") == Run(8, "mine")
    assert RunRegistry(objects, lambda: 7).register("mine") == Run(8, "mine")
    assert RunRegistry(objects, lambda: 8).register("next") == Run(9, "next")


def test_a_host_that_looks_long_at_what_was_written_marks_no_second_number() -> None:
    """While a host looks for written epochs, another host registers the same run and writes."""
    objects = store_with((1, "other", 1), (1, "other", 2))

    def written() -> int:
        assert registry(objects).register("mine") == Run(2, "mine")
        return 2

    assert RunRegistry(objects, written).register("mine") == Run(2, "mine")
    marks = [layout.parse_run(name) for name in objects.objects]
    assert {mark.run.number for mark in marks if mark is not None} == {1, 2}
