"""When a snapshot is due: by rows, by length of the chain, never before the minimum."""

from __future__ import annotations

import pytest

from checkpoint_store.key_group_range import KeyGroupRange
from checkpoint_store.state_handle import StateFileKind, StateHandle
from spark_state.checkpointing.snapshot_policy import MAX_FILES, snapshot_is_due


def handles(kind: StateFileKind, count: int, rows: int) -> list[StateHandle]:
    groups = KeyGroupRange(0, 1)
    return [StateHandle(kind, str(i), 1, "00", groups, i, rows) for i in range(count)]


@pytest.mark.parametrize(
    ("changelogs", "rows", "entries", "due"),
    [
        (9, 1000, 10, False),
        (10, 10, 100, True),
        (10, 10, 101, False),
        (11, 10, 101, True),
        (MAX_FILES - 1, 1, 1_000_000, False),
        (MAX_FILES, 1, 1_000_000, True),
    ],
)
def test_a_snapshot_is_due_when_changes_outgrew_the_state_or_the_chain_is_long(
    changelogs: int, rows: int, entries: int, due: bool
) -> None:
    assert snapshot_is_due(handles("changelog", changelogs, rows), entries, 10) is due


def test_a_chain_of_many_snapshots_is_long_too() -> None:
    chain = handles("snapshot", MAX_FILES - 1, 1000)
    assert not snapshot_is_due(chain, 100, 0)
    assert snapshot_is_due([*chain, *handles("changelog", 1, 1)], 1_000_000, 10)


def test_rows_of_the_snapshot_itself_do_not_count() -> None:
    chain = handles("snapshot", 1, 1000) + handles("changelog", 10, 1)
    assert not snapshot_is_due(chain, 100, 10)
