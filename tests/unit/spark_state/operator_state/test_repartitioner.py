"""Every subtask restores the right offsets of the right snapshot, for every case."""

from __future__ import annotations

import pyarrow as pa

from spark_state.operator_state.meta_info import OperatorStateMetaInfo, OperatorStateMode
from spark_state.operator_state.repartitioner import AssignedItems, assign_items

ITEM = pa.struct([("item", pa.int64())])
Rows = list[tuple[int, list[int]]]


def state(mode: OperatorStateMode, first: int, count: int) -> list[OperatorStateMetaInfo]:
    return [OperatorStateMetaInfo("state", mode, ITEM, range(first, first + count))]


def assigned(snapshots: list[list[OperatorStateMetaInfo]], subtask: int, parallelism: int) -> Rows:
    items: tuple[AssignedItems, ...] = assign_items(snapshots, subtask, parallelism)["state"]
    return [(share.snapshot, list(share.offsets)) for share in items]


def test_the_copies_of_a_broadcast_are_taken_in_turn() -> None:
    copies = [state("broadcast", first, 1) for first in range(3)]
    taken = [assigned(copies, subtask, 5) for subtask in range(5)]
    assert taken == [[(0, [0])], [(1, [1])], [(2, [2])], [(0, [0])], [(1, [1])]]


def test_a_state_without_items_is_still_named() -> None:
    assert assign_items([state("split", 0, 0)], 0, 2) == {"state": ()}
