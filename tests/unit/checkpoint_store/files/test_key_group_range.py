"""Ranges of key groups include both ends, and subtasks own the same ranges as in Flink."""

from __future__ import annotations

import pytest

from checkpoint_store.files.key_group_range import (
    KeyGroupRange,
    key_group_range_of_subtask,
)


def test_a_range_holds_both_its_ends() -> None:
    key_groups = KeyGroupRange(3, 5)
    assert list(key_groups) == [3, 4, 5]
    assert len(key_groups) == 3
    assert [group in key_groups for group in (2, 3, 5, 6)] == [False, True, True, False]


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (4, 3)])
def test_a_range_is_never_empty_or_negative(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="start <= end"):
        KeyGroupRange(start, end)


@pytest.mark.parametrize(
    ("other", "common", "rest"),
    [
        ((0, 1), None, [(2, 5)]),
        ((6, 9), None, [(2, 5)]),
        ((0, 2), (2, 2), [(3, 5)]),
        ((5, 9), (5, 5), [(2, 4)]),
        ((3, 4), (3, 4), [(2, 2), (5, 5)]),
        ((2, 5), (2, 5), []),
        ((0, 9), (2, 5), []),
    ],
)
def test_two_ranges_have_common_key_groups_and_a_rest(
    other: tuple[int, int], common: tuple[int, int] | None, rest: list[tuple[int, int]]
) -> None:
    own, its = KeyGroupRange(2, 5), KeyGroupRange(*other)
    expected = None if common is None else KeyGroupRange(*common)
    assert own.intersection(its) == its.intersection(own) == expected
    assert [*own.without(its)] == [KeyGroupRange(*ends) for ends in rest]


def test_ranges_are_those_of_flink() -> None:
    assert [key_group_range_of_subtask(128, 3, subtask) for subtask in range(3)] == [
        KeyGroupRange(0, 42),
        KeyGroupRange(43, 85),
        KeyGroupRange(86, 127),
    ]
