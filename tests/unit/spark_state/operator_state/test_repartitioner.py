"""Every subtask restores the right offsets of the right snapshot, for every case."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_state.operator_state.meta_info import OperatorStateMetaInfo, OperatorStateMode
from spark_state.operator_state.repartitioner import AssignedItems, assign_items

ITEM = pa.struct([("item", pa.int64())])
Rows = list[tuple[int, list[int]]]


def state(mode: OperatorStateMode, first: int, count: int) -> list[OperatorStateMetaInfo]:
    return [OperatorStateMetaInfo("state", mode, ITEM, range(first, first + count))]


def assigned(snapshots: list[list[OperatorStateMetaInfo]], subtask: int, parallelism: int) -> Rows:
    items: tuple[AssignedItems, ...] = assign_items(snapshots, subtask, parallelism)["state"]
    return [(share.snapshot, list(share.offsets)) for share in items]


SPLIT = [state("split", 0, 4), state("split", 7, 0), state("split", 3, 3)]
CASES: list[tuple[int, list[Rows]]] = [
    (3, [[(0, [0, 1, 2, 3])], [], [(2, [3, 4, 5])]]),
    (1, [[(0, [0, 1, 2, 3]), (2, [3, 4, 5])]]),
    (2, [[(0, [0, 2]), (2, [3, 5])], [(0, [1, 3]), (2, [4])]]),
    (4, [[(0, [0]), (2, [3])], [(0, [1]), (2, [4])], [(0, [2]), (2, [5])], [(0, [3])]]),
    (8, [[(0, [0])], [(0, [1])], [(0, [2])], [(0, [3])], [(2, [3])], [(2, [4])], [(2, [5])], []]),
]


@pytest.mark.parametrize(("parallelism", "expected"), CASES)
def test_split_items_are_dealt_round_robin(parallelism: int, expected: list[Rows]) -> None:
    assert [assigned(SPLIT, subtask, parallelism) for subtask in range(parallelism)] == expected


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_a_union_goes_whole_to_every_subtask(parallelism: int) -> None:
    union = [state("union", 2, 1), state("union", 0, 2)]
    for subtask in range(parallelism):
        assert assigned(union, subtask, parallelism) == [(0, [2]), (1, [0, 1])]


def test_the_copies_of_a_broadcast_are_taken_in_turn() -> None:
    copies = [state("broadcast", first, 1) for first in range(3)]
    taken = [assigned(copies, subtask, 5) for subtask in range(5)]
    assert taken == [[(0, [0])], [(1, [1])], [(2, [2])], [(0, [0])], [(1, [1])]]


def test_a_state_without_items_is_still_named() -> None:
    assert assign_items([state("split", 0, 0)], 0, 2) == {"state": ()}
