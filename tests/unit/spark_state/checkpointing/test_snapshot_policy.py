"""A snapshot is due by bytes or by the length of the chain, never before the minimum.

Bytes written since the restore count, too, so that short runs write parts of a snapshot instead of
whole snapshots that no barrier ever names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateFileKind, StateHandle
from spark_state.checkpointing.kept_state import KeptState, without_empty_ends
from spark_state.checkpointing.restore_plan import Handles, with_snapshot
from spark_state.checkpointing.snapshot_policy import (
    FEW_BYTES,
    FEW_ENTRIES,
    MANY_FILES,
    may_be_due,
    part_due,
    ranges_due,
)
from tests.support.operators.kept_chains import KeptChain

_NUMBERS = count()
BOTH = KeyGroupRange(0, 1)


def handles(kind: StateFileKind, files: int, rows: int, size: int | None = None) -> Handles:
    """Make files with `rows` rows each; `size`: length of a file in bytes, else one byte a row."""
    length = rows if size is None else size
    return tuple(
        StateHandle(kind, f"file-{next(_NUMBERS)}", length, "00", BOTH, epoch, rows)
        for epoch in range(files)
    )


def is_due(
    chain: Handles, own: Handles, entries: int, min_changelogs: int, *, adds: bool = False
) -> bool:
    """Return True if a snapshot of two key groups with equally many entries is due."""
    rows = {handle.name: np.array([handle.rows / 2] * 2) for handle in chain}
    kept, kept_here = (
        KeptState.of(BOTH, held, rows, [entries // 2, entries - entries // 2], adds=adds)
        for held in (chain, own)
    )
    due = ranges_due(kept, kept_here, min_changelogs)
    assert due in ((), (BOTH,))
    assert not due or may_be_due(chain, entries, min_changelogs, adds=adds), (
        "the cheap question says so, too"
    )
    return bool(due)


@pytest.mark.parametrize(
    ("changelogs", "rows", "entries", "due"),
    [
        (9, 1000, 10, False),
        (10, 10, 100, True),
        (10, 10, 101, False),
        (11, 10, 101, True),
        (MANY_FILES - 2, 1, 1_000_000, False),
        (MANY_FILES - 1, 1, 1_000_000, True),
    ],
)
def test_a_snapshot_is_due_when_changes_outgrew_the_state_or_the_chain_is_long(
    changelogs: int, rows: int, entries: int, due: bool
) -> None:
    chain = handles("snapshot", 1, entries) + handles("changelog", changelogs, rows)
    assert is_due(chain, chain, entries, 10) is due


@pytest.mark.parametrize(("entries", "due"), [(101, False), (100, True)])
def test_what_changelogs_hold_of_keys_that_were_not_there_before_does_not_count(
    entries: int, due: bool
) -> None:
    """Half of the changelogs' rows put the state for the first time, and half put the state
    again."""
    chain = handles("changelog", 20, 10)
    assert is_due(chain, chain, entries, 10) is due


def test_the_first_database_is_due_when_changelogs_hold_the_state() -> None:
    first = handles("changelog", 10, 10)
    assert is_due(first, first, 100, 10, adds=True)
    assert not is_due(first, first, 101, 10, adds=True)


def test_a_snapshot_that_adds_to_a_database_is_due_when_a_tenth_has_changed() -> None:
    """Such a snapshot writes only new rows."""
    changelogs = handles("changelog", 10, 10)
    chain = handles("database", 1, 1_000) + changelogs
    assert is_due(chain, changelogs, 1_000, 10, adds=True)
    assert not is_due(chain, changelogs, 1_001, 10, adds=True)
    assert not is_due(chain, changelogs, 1_000, 11, adds=True)
    assert not is_due(chain, changelogs[3:], 1_000, 10, adds=True), "a host has written too little"


def test_bytes_of_key_groups_are_counted_now_and_then_whatever_whole_files_say() -> None:
    large = handles("snapshot", 1, 10, size=1_000_000)
    chain = large + handles("changelog", 19, 10)
    assert not may_be_due(chain, 1000, 10, adds=False)
    assert may_be_due(chain + handles("changelog", 1, 10), 1000, 10, adds=False)


def test_a_state_of_which_most_was_deleted_is_written() -> None:
    chain = handles("snapshot", 1, 100) + handles("changelog", 10, 6)
    assert not is_due(chain, chain, 100 - 19, 10)
    assert is_due(chain, chain, 100 - 20, 10)


@pytest.mark.parametrize(("size", "due"), [(99, False), (100, True)])
def test_bytes_count_where_rows_of_changelogs_are_longer_or_shorter(size: int, due: bool) -> None:
    """A snapshot's rows have 10 bytes."""
    base = handles("snapshot", 1, 100, 1000)
    few_long_rows, many_short_rows = (
        (*base, *handles("changelog", 10, rows, size)) for rows in (1, 1000)
    )
    assert is_due(few_long_rows, few_long_rows, 100, 10) is due
    assert is_due(many_short_rows, many_short_rows, 100, 10) is due


@pytest.mark.parametrize(
    ("written", "rows", "due"),
    [(0, 0, False), (7, 1000, False), (8, 10, True), (8, 9, False), (9, 9, True)],
)
def test_one_begins_only_when_most_of_what_it_replaces_was_written_since_the_restore(
    written: int, rows: int, due: bool
) -> None:
    own = handles("changelog", written, rows)
    chain = (*handles("changelog", 20, 10), *own)
    assert is_due(chain, own, 100 if rows < 1000 else 5000, 10) is due


def test_of_a_long_chain_a_run_writes_half_the_files() -> None:
    restored = handles("changelog", MANY_FILES, 1)
    for written, due in ((MANY_FILES // 2 - 1, False), (MANY_FILES // 2, True)):
        own = handles("changelog", written, 1)
        assert is_due((*restored, *own), own, 1_000_000, 10) is due


def test_a_chain_of_many_snapshots_is_long_too() -> None:
    chain = handles("snapshot", MANY_FILES - 1, 1000)
    assert not is_due(chain, chain, 100, 0)
    longer = (*chain, *handles("changelog", 1, 1))
    assert is_due(longer, longer, 1_000_000, 10)


def test_a_file_that_is_cut_in_two_counts_once() -> None:
    cut = tuple(
        replace(handle, key_groups=KeyGroupRange(group, group))
        for handle in handles("changelog", 9, 50)
        for group in (0, 1)
    )
    assert not is_due(cut, cut, 100, 10)
    assert not is_due(cut, cut, 227, 9)
    assert is_due(cut, cut, 225, 9)


def test_rows_of_the_snapshot_itself_do_not_count() -> None:
    chain = handles("snapshot", 1, 1000) + handles("changelog", 10, 1)
    assert not is_due(chain, chain, 100, 10)


GROUPS = KeyGroupRange(10, 41)


def due_ranges(rows: Sequence[int], entries: Sequence[int], files: int = 10) -> list[range]:
    """Return the key groups, from 0 on, of the due snapshot. The state was written before, and
    changelogs with these rows put the state again."""
    counts = np.array(rows)
    base = StateHandle("snapshot", "base", sum(entries), "00", GROUPS, 0, sum(entries))
    names = [f"file-{next(_NUMBERS)}" for _ in range(files)]
    size = int(counts.sum())
    changes = (StateHandle("changelog", name, size, "00", GROUPS, 0, size) for name in names)
    of_files = dict.fromkeys(names, counts) | {"base": np.array(entries)}
    kept = KeptState.of(GROUPS, (base, *changes), of_files, entries, adds=False)
    return [range(due.start - 10, due.end - 9) for due in ranges_due(kept, kept, 1)]


LARGE = FEW_ENTRIES  # entries of a key group; two such key groups are not written whole
FIFTH = range(8, 14)


def only(groups: Sequence[int], rows: int, others: int = 0) -> list[int]:
    """Return the rows of changelogs by key group: `rows` in `groups`, `others` elsewhere."""
    return [rows if group in groups else others for group in range(len(GROUPS))]


def test_only_key_groups_are_written_whose_changelogs_hold_as_much_as_they_do() -> None:
    hot = only(FIFTH, LARGE, 100)
    assert due_ranges(hot, [LARGE] * 32) == [FIFTH]
    assert due_ranges([LARGE // 10] * 32, [LARGE] * 32) == [range(32)]


def test_nothing_is_written_before_all_changelogs_hold_as_much_as_the_state() -> None:
    assert due_ranges(only(FIFTH, LARGE // 2), [LARGE] * 32) == []


def test_what_is_nearly_worn_is_written_with_its_neighbours() -> None:
    uneven = [LARGE // 10 + (200 if group % 2 else -190) for group in range(32)]
    assert due_ranges(uneven, [LARGE] * 32) == [range(32)]


def test_ranges_are_few_and_what_is_between_is_taken_where_it_costs_least() -> None:
    hot = [0, 3, 10, 16, 17, 25, 31]
    ranges = due_ranges(only(hot, 5 * LARGE), [LARGE] * 32)
    assert ranges == [range(4), range(10, 18), range(25, 26), range(31, 32)]


def test_a_chain_of_many_files_is_cut_in_one_place() -> None:
    hot = [0, 10, 20]
    assert due_ranges(only(hot, LARGE), [LARGE] * 32, MANY_FILES - 2) == [range(21)]


def test_of_a_long_chain_all_is_written_that_has_changed() -> None:
    assert due_ranges(only(FIFTH, 1), [LARGE] * 32, MANY_FILES) == [FIFTH]


def test_a_small_state_is_written_whole() -> None:
    assert due_ranges(only(FIFTH, 100), [10] * 32) == [range(32)]


def test_what_a_snapshot_leaves_out_is_what_a_changelog_has_no_rows_of() -> None:
    chain = handles("changelog", 3, 4)
    rows = {chain[0].name: np.array([4, 0]), chain[1].name: np.array([0, 0])}
    first, _, unknown = chain
    assert without_empty_ends(chain, BOTH, rows) == (
        replace(first, key_groups=KeyGroupRange(0, 0)),
        unknown,
    )


def test_bytes_of_key_groups_are_their_shares_of_the_rows() -> None:
    """An entry takes as many bytes as in the newest snapshot of its key group."""
    whole = StateHandle("snapshot", "whole", 1000, "00", BOTH, 0, 10)
    part = StateHandle("snapshot", "part", 600, "00", KeyGroupRange(1, 1), 1, 2)
    changelog = StateHandle("changelog", "changelog", 100, "00", BOTH, 2, 4)
    chain = (*with_snapshot((whole,), (part,), part.key_groups), changelog)
    rows = {"whole": [8, 2], "part": [0, 2], "changelog": [3, 1]}
    counts = {name: np.array(of_file) for name, of_file in rows.items()}
    kept = KeptState.of(BOTH, chain, counts, [8, 3], adds=False)
    assert kept.changed.tolist() == [75, 25]
    assert kept.held.tolist() == [875, 625]
    assert kept.entries.tolist() == [800, 900]
    assert kept.changelogs.tolist() == [1, 1]


def restored(changelogs: list[int], rows: list[int], entries: list[int]) -> KeptState:
    """Make the restored state of key groups 10, 11, …; every row has one byte."""
    key_groups = KeyGroupRange(10, 9 + len(changelogs))
    chain = handles("changelog", max(changelogs), 1)
    files, changed, number = (np.array(numbers) for numbers in (changelogs, rows, entries))
    return KeptState(
        key_groups,
        chain,
        files,
        changed=changed * 1.0,
        held=(changed + number) * 1.0,
        entries=number * 1.0,
        number=number,
        outdated=changed * 1.0,
    )


@pytest.mark.parametrize("groups", [1, 2, 3, 5, 8])
def test_a_part_is_due_when_a_snapshot_is(groups: int) -> None:
    entries = [LARGE] * groups
    of_long_chain = [MANY_FILES // 2] * groups
    assert part_due(restored([10] * groups, [LARGE] * groups, entries), 10) is not None
    assert part_due(restored([10] * groups, [LARGE - 1] * groups, entries), 10) is None
    assert part_due(restored([9] * groups, [LARGE] * groups, entries), 10) is None
    assert part_due(restored(of_long_chain, [1] * groups, entries), 10) is not None
    assert part_due(restored(of_long_chain, [1] * groups, entries), 1000) is not None
    assert part_due(restored([MANY_FILES // 2 - 1] * groups, [1] * groups, entries), 10) is None
    assert part_due(restored([0] * groups, [0] * groups, [0] * groups), 1) is None


def test_a_part_takes_the_key_groups_with_most_files_and_the_least_of_these() -> None:
    files = [10, 10, 12, 12, 11, 10, 10, 10]
    part = part_due(restored(files, [LARGE] * 8, [LARGE] * 8), 10)
    assert part is not None
    assert part.start == 12


def test_a_part_is_as_large_as_it_must_be_to_make_a_snapshot_no_longer_due() -> None:
    groups = 64
    for excess, length in ((0, 4), (4 * LARGE, 5), (10 * LARGE, 11), (60 * LARGE, 16)):
        rows = [LARGE] * groups
        rows[-1] += excess
        part = part_due(restored([10] * groups, rows, [LARGE] * groups), 10)
        assert part == KeyGroupRange(10, 9 + length), "a sixteenth to a quarter"


def test_a_key_group_is_not_divided_and_a_small_state_neither() -> None:
    large_first = restored([10, 10], [LARGE, LARGE], [2 * LARGE - 1, 1])
    assert part_due(large_first, 10) == KeyGroupRange(10, 10)
    small = restored([10, 11], [FEW_ENTRIES, 0], [FEW_ENTRIES // 2] * 2)
    assert part_due(small, 10) == KeyGroupRange(10, 11)
    of_large_entries = replace(small.handles[0], length=FEW_BYTES)
    assert part_due(replace(small, handles=(of_large_entries, *small.handles[1:])), 10) == (
        KeyGroupRange(11, 11)
    )


def test_changelogs_count_for_the_key_groups_that_they_are_needed_for() -> None:
    own = KeyGroupRange(10, 13)

    def handle(kind: StateFileKind, start: int, end: int) -> StateHandle:
        return StateHandle(kind, f"{kind}-{start}", 1, "00", KeyGroupRange(start, end), 0, 1)

    chain = (handle("changelog", 12, 13), handle("snapshot", 10, 11), handle("changelog", 10, 13))
    rows = {"changelog-10": np.array([1, 0, 1, 1])}
    assert KeptState.of(own, chain, rows, [1] * 4, adds=False).changelogs.tolist() == [1, 0, 2, 2]


NEVER = 1_000_000


SKEWS = ("even", "hot entries", "large key groups", "hot key group")
HUNDREDTHS = (1, 5, 10, 100)
# Each length of a run with each share of changes, and each of both with each skew.
PAIRS = [
    (epochs, hundredths, SKEWS[(place + other) % len(SKEWS)])
    for place, epochs in enumerate((1, 2, 3, 5, 8, 20, 60))
    for other, hundredths in enumerate(HUNDREDTHS)
]


@pytest.mark.parametrize(("epochs", "hundredths", "skew"), PAIRS)
@pytest.mark.long
def test_chains_and_what_is_written_stay_bounded_however_long_runs_are(
    epochs: int, hundredths: int, skew: str
) -> None:
    """The worst case: no barrier ever names a whole snapshot of a run, only parts."""
    groups, min_changelogs = 32, 10
    entries, rows = [10 * LARGE] * groups, [LARGE * hundredths // 10] * groups
    if skew == "hot entries":
        rows = [2 * rows[0] if group % 7 == 0 else rows[0] // 4 for group in range(groups)]
    elif skew == "large key groups":
        entries = [40 * LARGE if group % 9 == 4 else 5 * LARGE for group in range(groups)]
    elif skew == "hot key group":
        rows = [sum(rows) if group == 20 else 0 for group in range(groups)]
    runs = KeptChain(np.array(entries), min_changelogs, delay=NEVER)
    for _ in range(400 // epochs):
        runs.run([np.array(rows)] * epochs)
    size, of_run = sum(entries), epochs * sum(rows)
    assert runs.in_snapshots <= (1.0 if epochs == 1 else 2.0) * runs.changed
    assert runs.longest_wait <= max(size / 4, *entries)
    due = max(size, min_changelogs * sum(rows))
    assert runs.most_needed <= size + due + 5 * of_run
    assert runs.most_read <= size + 4 * due + 5 * of_run


def test_chains_are_short_where_little_changes() -> None:
    runs = KeptChain(np.array([10 * LARGE] * 32))
    for _ in range(6 * MANY_FILES):
        runs.run([np.ones(32, np.int64)])
    assert runs.most_handles <= 2.5 * MANY_FILES + 1
    assert runs.longest_wait <= 320 * LARGE / 16
    assert runs.in_snapshots <= 320 * LARGE * 6 * MANY_FILES / 150


@pytest.mark.parametrize(("subtasks", "epochs"), [(8, 190), (64, 60), (16, 190)])
def test_the_chains_of_many_subtasks_that_became_one_are_short_after_some_runs(
    subtasks: int, epochs: int
) -> None:
    """Each key group is kept in few files, but the subtask in many files."""
    groups = 64
    width = groups // subtasks
    chain = tuple(
        StateHandle("changelog", f"{subtask}-{epoch}", 1, "00", part, epoch, 1)
        for subtask in range(subtasks)
        for epoch in range(epochs)
        for part in [KeyGroupRange(subtask * width, (subtask + 1) * width - 1)]
    )
    runs = KeptChain(np.array([10 * LARGE] * groups), chain=chain)
    for _ in range(5):
        runs.run([np.ones(groups, np.int64)])
    assert len(runs.chain) < 2.5 * MANY_FILES
    assert runs.in_snapshots <= 640 * LARGE
