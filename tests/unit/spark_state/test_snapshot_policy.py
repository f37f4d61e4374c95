"""When a snapshot is due: by rows, by length of the chain, never before the minimum; and by what
was written since the restore, so that short runs do not write snapshots that nobody names, but
parts of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import numpy.typing as npt
import pytest

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateFileKind, StateHandle
from spark_state.checkpointing.restore_plan import Handles, with_snapshot
from spark_state.checkpointing.snapshot_policy import (
    FEW_BYTES,
    FEW_ENTRIES,
    MANY_FILES,
    Restored,
    changelogs_by_key_group,
    part_due,
    snapshot_is_due,
)

_NUMBERS = count()


def handles(kind: StateFileKind, files: int, rows: int) -> list[StateHandle]:
    groups = KeyGroupRange(0, 1)
    return [
        StateHandle(kind, f"file-{next(_NUMBERS)}", 1, "00", groups, epoch, rows)
        for epoch in range(files)
    ]


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


def test_a_file_that_is_cut_in_two_counts_once() -> None:
    cut = [
        replace(handle, key_groups=KeyGroupRange(group, group))
        for handle in handles("changelog", 9, 50)
        for group in (0, 1)
    ]
    assert not snapshot_is_due(cut, cut, 100, 10)
    assert not snapshot_is_due(cut, cut, 451, 9)
    assert snapshot_is_due(cut, cut, 450, 9)


def test_rows_of_the_snapshot_itself_do_not_count() -> None:
    chain = handles("snapshot", 1, 1000) + handles("changelog", 10, 1)
    assert not snapshot_is_due(chain, chain, 100, 10)


def restored(changelogs: list[int], rows: list[int], entries: list[int]) -> Restored:
    """What was found of the key groups 10, 11, …"""
    key_groups = KeyGroupRange(10, 9 + len(changelogs))
    chain = tuple(handles("changelog", max(changelogs), 1))
    counts = (np.array(numbers) for numbers in (changelogs, rows, entries))
    return Restored(key_groups, chain, *counts)


LARGE = FEW_ENTRIES  # entries of a key group; a state of several is not written whole


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
        return StateHandle(kind, "file", 1, "00", KeyGroupRange(start, end), 0, 1)

    chain = [handle("changelog", 12, 13), handle("snapshot", 10, 11), handle("changelog", 10, 13)]
    assert changelogs_by_key_group(chain, own).tolist() == [1, 1, 2, 2]


@dataclass
class ShortRuns:
    """Runs of a subtask whose state keeps its size. The worst case: none of the snapshots that they
    begin is ever named, only parts. `rows`: changelog rows of an epoch, by key group."""

    entries: list[int]
    rows: list[int]
    chain: Handles = ()
    changed: int = 0
    in_snapshots: int = 0
    longest_wait: int = 0
    most_replayed: int = 0
    most_read: int = 0
    most_handles: int = 0

    @property
    def own(self) -> KeyGroupRange:
        return KeyGroupRange(0, len(self.entries) - 1)

    def replayed(self) -> npt.NDArray[np.int64]:
        rows = np.zeros(len(self.entries), np.int64)
        for handle in self.chain:
            if handle.kind == "changelog":
                needed = slice(handle.key_groups.start, handle.key_groups.end + 1)
                rows[needed] += self.rows[needed]
        return rows

    def run(self, number: int, epochs: int, min_changelogs: int) -> None:
        rows, entries = self.replayed(), np.array(self.entries)
        changelogs = changelogs_by_key_group(self.chain, self.own)
        restored = Restored(self.own, self.chain, changelogs, rows, entries)
        part = part_due(restored, min_changelogs)
        self.most_replayed = max(self.most_replayed, int(rows.sum()))
        self.most_read = max(self.most_read, sum({h.name: h.rows for h in self.chain}.values()))
        self.most_handles = max(self.most_handles, len(self.chain))
        if part is not None:
            size = int(entries[part.start : part.end + 1].sum())
            snapshot = StateHandle("snapshot", f"part-{number}", 1, "00", part, number, size)
            self.chain = with_snapshot(self.chain, (snapshot,), part)
            self.in_snapshots += size
            self.longest_wait = max(self.longest_wait, size)
        own: list[StateHandle] = []
        is_begun = False
        for epoch in range(epochs):
            name, changed = f"changes-{number}-{epoch}", sum(self.rows)
            own.append(StateHandle("changelog", name, 1, "00", self.own, number, changed))
            self.chain = (*self.chain, own[-1])
            self.changed += changed
            is_due = snapshot_is_due(self.chain, own, sum(self.entries), min_changelogs)
            if not is_begun and is_due:
                is_begun, self.in_snapshots = True, self.in_snapshots + sum(self.entries)


@pytest.mark.parametrize("epochs", [1, 2, 3, 5, 8, 20, 60])
@pytest.mark.parametrize("hundredths", [1, 5, 10, 100], ids="{}%".format)
@pytest.mark.parametrize("skew", ["even", "hot entries", "large key groups", "hot key group"])
@pytest.mark.long
def test_chains_and_what_is_written_stay_bounded_however_long_runs_are(
    epochs: int, hundredths: int, skew: str
) -> None:
    groups, min_changelogs = 32, 10
    entries, rows = [10 * LARGE] * groups, [LARGE * hundredths // 10] * groups
    if skew == "hot entries":
        rows = [2 * rows[0] if group % 7 == 0 else rows[0] // 4 for group in range(groups)]
    elif skew == "large key groups":
        entries = [40 * LARGE if group % 9 == 4 else 5 * LARGE for group in range(groups)]
    elif skew == "hot key group":
        rows = [sum(rows) if group == 20 else 0 for group in range(groups)]
    runs = ShortRuns(entries, rows)
    for number in range(400 // epochs):
        runs.run(number, epochs, min_changelogs)
    size, of_run = sum(entries), epochs * sum(rows)
    assert runs.in_snapshots <= (1.0 if epochs == 1 else 2.5) * runs.changed
    assert runs.longest_wait <= max(size / 4, *entries)
    due = max(size, min_changelogs * sum(rows))
    assert runs.most_replayed <= due + 5 * of_run
    assert runs.most_read <= size + 3 * due + 5 * of_run


def test_chains_are_short_where_little_changes() -> None:
    runs = ShortRuns([10 * LARGE] * 32, [1] * 32)
    for number in range(6 * MANY_FILES):
        runs.run(number, 1, 10)
    assert runs.most_handles <= 2.5 * MANY_FILES
    assert runs.longest_wait <= 320 * LARGE / 16
    assert runs.in_snapshots <= 320 * LARGE * 6 * MANY_FILES / 150


@pytest.mark.parametrize(("subtasks", "epochs"), [(8, 190), (64, 60), (16, 190)])
def test_the_chains_of_many_subtasks_that_became_one_are_short_after_some_runs(
    subtasks: int, epochs: int
) -> None:
    """Each key group is kept in few files, and the subtask in many."""
    groups = 64
    width = groups // subtasks
    chain = [
        StateHandle("changelog", f"{subtask}-{epoch}", 1, "00", part, epoch, 1)
        for subtask in range(subtasks)
        for epoch in range(epochs)
        for part in [KeyGroupRange(subtask * width, (subtask + 1) * width - 1)]
    ]
    runs = ShortRuns([10 * LARGE] * groups, [1] * groups, tuple(chain))
    for number in range(5):
        runs.run(number, 1, 10)
    assert len(runs.chain) < 2.5 * MANY_FILES
    assert runs.in_snapshots <= 640 * LARGE
