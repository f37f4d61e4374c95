"""How resident state gets to the state an epoch starts from: every case and its outcome."""

from __future__ import annotations

import pytest

from checkpoint_store.key_group_range import KeyGroupRange
from checkpoint_store.state_handle import StateHandle
from spark_state.checkpointing.restore_plan import (
    Extend,
    Handles,
    Keep,
    Resident,
    Restore,
    RestorePlan,
    UndoSealed,
    plan_restore,
)


def handle(name: str) -> StateHandle:
    return StateHandle("changelog", name, 1, "00", KeyGroupRange(0, 1), 1, 1)


A, B, C, ZOMBIE, SNAPSHOT = (handle(name) for name in ("a", "b", "c", "zombie", "snapshot"))

SCRIPT: list[tuple[str, Resident | None, Handles, RestorePlan]] = [
    ("nothing in memory", None, (A,), Restore((A,))),
    ("nothing in memory, empty state", None, (), Restore(())),
    ("the epoch before was mine", Resident((A, B), (A,)), (A, B), Keep()),
    ("this epoch runs again", Resident((A, B), (A,)), (A,), UndoSealed()),
    ("the first epoch runs again", Resident((A,), ()), (), UndoSealed()),
    ("another host ran epochs meanwhile", Resident((A,), ()), (A, B, C), Extend((B, C))),
    ("a newer attempt replaced mine", Resident((A, ZOMBIE), (A,)), (A, B), Restore((A, B))),
    ("it built on a newer attempt", Resident((A, ZOMBIE), ()), (A, B, C), Restore((A, B, C))),
    ("an empty epoch runs again", Resident((A,), (A,)), (A,), Keep()),
    ("another host wrote a snapshot", Resident((A,), ()), (SNAPSHOT, C), Restore((SNAPSHOT, C))),
    ("two epochs back", Resident((A, B, C), (A, B)), (A,), Restore((A,))),
    ("empty and undone already", Resident((), None), (A,), Restore((A,))),
]


@pytest.mark.parametrize(
    ("resident", "target", "expected"), [row[1:] for row in SCRIPT], ids=[row[0] for row in SCRIPT]
)
def test_the_cheapest_way_to_the_target_is_chosen(
    resident: Resident | None, target: Handles, expected: RestorePlan
) -> None:
    assert plan_restore(resident, target) == expected
