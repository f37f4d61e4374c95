"""When a subtask replaces its chain of changelogs by a snapshot, and by what part of one.

A snapshot writes as many rows as the state has, so it is due when the changelogs since the last one
hold at least as many: the bytes written stay within twice the bytes of the changes (I7), and a
restore reads about twice the state. `MANY_FILES` does the same for the length of a chain, and so of
a manifest, where a large state changes little or was written by many subtasks.

It is written while epochs go on, and the barrier of a later one names it. A host that ends before
has written it for nothing, as where a scheduled run ends by itself after an epoch or two. So one
begins only once half of the changes that make one due were written since the host's restore: what
is lost stays within twice the bytes of the changes.

Runs that are shorter write snapshots in parts. A restore that finds one due replaces some key
groups, and its first epoch names that part, for which it waits. A part begins at the key group that
most changelogs are kept for, the least of several, so that parts pass over the key groups in turn.
It takes as many as make a snapshot no longer due, so that parts keep pace with the changes. There
are two bounds. A sixteenth of the entries at least, because each part is a file and cuts handles of
others in two; a part at the end of the range may be smaller. A quarter at most, however much is
due, so that no epoch waits for a whole snapshot; but a key group is not divided. A state of few
entries and bytes is one part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle, bytes_of

Counts = npt.NDArray[np.int64]

MANY_FILES = 200
FEW_ENTRIES = 10_000
FEW_BYTES = 8 << 20

_LARGEST_PART = 4
_SMALLEST_PART = 16
# Parts leave a chain that has twice as many changelogs as a key group is kept in on average, and
# more handles than files, because a part cuts handles in two.
_MANY_CHANGELOGS = MANY_FILES // 2
_MANY_HANDLES = 5 * MANY_FILES // 2


def snapshot_is_due(
    handles: Sequence[StateHandle],
    since_restore: Sequence[StateHandle],
    entries: int,
    min_changelogs: int,
) -> bool:
    """Whether a state of `entries` entries, kept as `handles`, should be written as a snapshot
    while epochs go on. `since_restore`: those handles that came after the host's restore."""
    return _hold(handles, 1.0, entries, min_changelogs) and _hold(
        since_restore, 0.5, entries, min_changelogs
    )


def _hold(
    handles: Sequence[StateHandle], snapshots: float, entries: int, min_changelogs: int
) -> bool:
    """Whether a chain holds what makes a snapshot due, times `snapshots`, or more. A file counts
    whole even if a part has replaced some of its key groups."""
    files = {handle.name: handle for handle in handles}
    if len(files) >= snapshots * MANY_FILES:
        return True
    changelogs = [handle for handle in files.values() if handle.kind == "changelog"]
    if len(changelogs) < snapshots * min_changelogs:
        return False
    return sum(handle.rows for handle in changelogs) >= snapshots * entries


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore of `key_groups` from `handles` found, for each key group in order: how many
    `changelogs` it is kept in, how many `rows` of them were read, the `entries` it has now."""

    key_groups: KeyGroupRange
    handles: tuple[StateHandle, ...]
    changelogs: Counts
    rows: Counts
    entries: Counts


def changelogs_by_key_group(handles: Sequence[StateHandle], key_groups: KeyGroupRange) -> Counts:
    """How many of `handles`, which are of `key_groups` only, are changelogs of each of them."""
    counts = np.zeros(len(key_groups), np.int64)
    for handle in handles:
        if handle.kind == "changelog":
            first = handle.key_groups.start - key_groups.start
            counts[first : first + len(handle.key_groups)] += 1
    return counts


def part_due(restored: Restored, min_changelogs: int) -> KeyGroupRange | None:
    """The key groups of which the first epoch after a restore is to name a snapshot."""
    first = int(np.argmax(restored.changelogs))
    has_many_handles = len(restored.handles) >= _MANY_HANDLES
    is_long = restored.changelogs[first] >= min(min_changelogs, _MANY_CHANGELOGS)
    rows, changelogs, entries = (
        restored.rows.sum(),
        restored.changelogs.sum(),
        restored.entries.sum(),
    )
    most_changelogs = _MANY_CHANGELOGS * len(restored.key_groups)
    is_due = rows >= entries or changelogs >= most_changelogs
    if not has_many_handles and not (is_long and is_due):
        return None
    if _is_small(restored):
        return restored.key_groups
    # What a part writes and leaves, for each key group that it may end with.
    written = np.cumsum(restored.entries[first:])
    leaves_due = (rows - np.cumsum(restored.rows[first:]) >= entries) | (
        changelogs - np.cumsum(restored.changelogs[first:]) >= most_changelogs
    )
    is_enough = (written * _SMALLEST_PART >= entries) & ~leaves_due & (not has_many_handles)
    fitting = max(1, int(np.count_nonzero(written * _LARGEST_PART <= entries)))
    enough = int(np.argmax(is_enough)) + 1 if is_enough.any() else len(written)
    start = restored.key_groups.start + first
    return KeyGroupRange(start, start + min(fitting, enough) - 1)


def _is_small(restored: Restored) -> bool:
    """Whether writing the state takes little longer than a request to an object store. The files
    have each entry at least once."""
    size = bytes_of(restored.handles)
    return bool(restored.entries.sum() <= FEW_ENTRIES and size <= FEW_BYTES)
