"""Resident state reaches an epoch's base in the cheapest way, for every case."""

from __future__ import annotations

import pytest

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from spark_state.checkpointing.restore_plan import (
    Extend,
    Handles,
    Keep,
    Resident,
    Restore,
    RestorePlan,
    UndoSealed,
    plan_restore,
    with_snapshot,
)


def handle(name: str, start: int = 0, end: int = 1) -> StateHandle:
    return StateHandle("changelog", name, 1, "00", KeyGroupRange(start, end), 1, 1)


A, B, C, ZOMBIE, SNAPSHOT = (handle(name) for name in ("a", "b", "c", "zombie", "snapshot"))

SCRIPT: list[tuple[str, Resident | None, Handles, RestorePlan]] = [
    ("nothing in memory", None, (A,), Restore()),
    ("nothing in memory, empty state", None, (), Restore()),
    ("the epoch before was mine", Resident((A, B), (A,)), (A, B), Keep()),
    ("this epoch runs again", Resident((A, B), (A,)), (A,), UndoSealed()),
    ("the first epoch runs again", Resident((A,), ()), (), UndoSealed()),
    ("another host ran epochs meanwhile", Resident((A,), ()), (A, B, C), Extend((B, C))),
    ("a newer attempt replaced mine", Resident((A, ZOMBIE), (A,)), (A, B), Restore()),
    ("it built on a newer attempt", Resident((A, ZOMBIE), ()), (A, B, C), Restore()),
    ("an empty epoch runs again", Resident((A,), (A,)), (A,), Keep()),
    ("another host wrote a snapshot", Resident((A,), ()), (SNAPSHOT, C), Restore()),
    ("two epochs back", Resident((A, B, C), (A, B)), (A,), Restore()),
    ("empty and undone already", Resident((), None), (A,), Restore()),
]


@pytest.mark.parametrize(
    ("resident", "target", "expected"), [row[1:] for row in SCRIPT], ids=[row[0] for row in SCRIPT]
)
def test_the_cheapest_way_to_the_target_is_chosen(
    resident: Resident | None, target: Handles, expected: RestorePlan
) -> None:
    assert plan_restore(resident, target) == expected


def test_a_snapshot_of_all_key_groups_takes_the_place_of_all_files() -> None:
    assert with_snapshot((A, B), (SNAPSHOT,), KeyGroupRange(0, 1)) == (SNAPSHOT,)


def test_a_snapshot_of_some_key_groups_leaves_the_others_to_the_older_files() -> None:
    chain = (handle("a", 0, 2), handle("b", 0, 9), handle("c", 3, 5), handle("d", 5, 9))
    part = handle("part", 3, 6)
    assert with_snapshot(chain, (part,), part.key_groups) == (
        handle("a", 0, 2),
        handle("b", 0, 2),
        handle("b", 7, 9),
        handle("d", 7, 9),
        part,
    )


def test_a_snapshot_of_several_files_or_of_none_stands_for_all_its_key_groups() -> None:
    chain = (handle("a", 0, 9),)
    files = (handle("first", 2, 3), handle("second", 4, 6))
    rest = (handle("a", 0, 1), handle("a", 7, 9))
    assert with_snapshot(chain, files, KeyGroupRange(2, 6)) == (*rest, *files)
    assert with_snapshot(chain, (), KeyGroupRange(2, 6)) == rest


def test_the_parts_of_all_key_groups_leave_no_older_file() -> None:
    chain: Handles = (handle("a", 0, 9), handle("b", 0, 9))
    parts = [handle("middle", 3, 6), handle("first", 0, 2), handle("last", 7, 9)]
    for part in parts:
        chain = with_snapshot(chain, (part,), part.key_groups)
    assert chain == tuple(parts)
