"""When a snapshot is due: by rows, by length of the chain, never before the minimum; and by what
was written since the restore, so that short runs do not write snapshots that nobody names."""

from __future__ import annotations

import pytest

from checkpoint_store.key_group_range import KeyGroupRange
from checkpoint_store.state_handle import StateFileKind, StateHandle
from spark_state.checkpointing.snapshot_policy import (
    MANY_FILES,
    snapshot_is_due,
    snapshot_is_overdue,
)


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
        (MANY_FILES - 1, 1, 1_000_000, False),
        (MANY_FILES, 1, 1_000_000, True),
    ],
)
def test_a_snapshot_is_due_when_changes_outgrew_the_state_or_the_chain_is_long(
    changelogs: int, rows: int, entries: int, due: bool
) -> None:
    chain = handles("changelog", changelogs, rows)
    assert snapshot_is_due(chain, chain, entries, 10) is due
    twice = handles("changelog", 2 * changelogs, rows)
    assert snapshot_is_overdue(twice, entries, 10) is due
    assert not snapshot_is_overdue(chain, entries, 10)


@pytest.mark.parametrize(
    ("written", "rows", "due"),
    [(0, 0, False), (4, 1000, False), (5, 10, True), (5, 9, False), (6, 9, True)],
)
def test_one_begins_only_when_half_of_what_makes_one_due_was_written_since_the_restore(
    written: int, rows: int, due: bool
) -> None:
    own = handles("changelog", written, rows)
    chain = [*handles("changelog", 20, 10), *own]
    assert snapshot_is_due(chain, own, 100, 10) is due


def test_of_a_long_chain_a_run_writes_half_the_files() -> None:
    restored = handles("changelog", MANY_FILES, 1)
    for written, due in ((MANY_FILES // 2 - 1, False), (MANY_FILES // 2, True)):
        own = handles("changelog", written, 1)
        assert snapshot_is_due([*restored, *own], own, 1_000_000, 10) is due


def test_a_chain_of_many_snapshots_is_long_too() -> None:
    chain = handles("snapshot", MANY_FILES - 1, 1000)
    assert not snapshot_is_due(chain, chain, 100, 0)
    longer = [*chain, *handles("changelog", 1, 1)]
    assert snapshot_is_due(longer, longer, 1_000_000, 10)
    assert snapshot_is_overdue([*chain, *longer, *longer], 1_000_000, 10)


def test_rows_of_the_snapshot_itself_do_not_count() -> None:
    chain = handles("snapshot", 1, 1000) + handles("changelog", 10, 1)
    assert not snapshot_is_due(chain, chain, 100, 10)


@pytest.mark.parametrize("epochs_a_run", [1, 2, 3, 5, 8, 20, 60])
@pytest.mark.parametrize("rows", [10, 50, 100, 1000])
def test_chains_and_what_is_written_stay_bounded_however_long_runs_are(
    epochs_a_run: int, rows: int
) -> None:
    """The worst case: of the snapshots only those are ever named that an epoch waits for."""
    entries, min_changelogs = 1000, 10
    chain: list[StateHandle] = []
    changed = in_snapshots = longest = 0
    for _ in range(2000 // epochs_a_run):
        if snapshot_is_overdue(chain, entries, min_changelogs):
            chain, in_snapshots = handles("snapshot", 1, entries), in_snapshots + entries
        own: list[StateHandle] = []
        is_begun = False
        for _ in range(epochs_a_run):
            own += handles("changelog", 1, rows)
            chain += own[-1:]
            changed += rows
            if not is_begun and snapshot_is_due(chain, own, entries, min_changelogs):
                is_begun, in_snapshots = True, in_snapshots + entries
        longest = max(longest, sum(handle.rows for handle in chain))
    overdue = 2 * max(entries, min_changelogs * rows)
    assert in_snapshots <= 2.5 * changed
    assert longest <= entries + overdue + epochs_a_run * rows
