"""Decides when a subtask replaces changelogs by a snapshot, and of which key groups.

Bytes of a file are outdated if later changes have replaced or deleted the values. A snapshot is due
when the files have at least as many outdated bytes as the snapshot would write. So a restore reads
at most about twice the state. The snapshot holds only *worn* key groups: key groups with at least
as many outdated bytes as bytes of entries. A key group that changes little, or only grows, is left
out.

A snapshot names contiguous ranges of key groups. Each range has files of its own and cuts older
handles in two, so a snapshot should have few ranges. A range may also include a gap between worn
key groups, if the gap is nearly worn or small, or if there would be too many ranges. Even with the
gaps, the key groups of a snapshot have at least as many outdated bytes as the snapshot writes: all
key groups together have enough outdated bytes, and only key groups with too few are left out. No
byte of a changelog becomes outdated twice, so all snapshots together have at most the bytes of all
changelogs (I7).

A chain is the list of files that restores a subtask. `MANY_FILES` bounds the number of files in a
chain, and so the length of a manifest. A chain becomes long if a large state changes little, or if
many subtasks wrote the files. Then the changelogs at the end of the chain are merged into one
changelog, if these changelogs are small compared with the state. A merge writes a change a second
time, and a later snapshot writes the change a third time. A merge reads all its changelogs at once,
so `MERGED_BYTES` bounds their size. If files that cannot be merged make the chain long, a snapshot
of all changed key groups is due. Merged changelogs are not merged again, so a snapshot is due after
about 200 merged changelogs, which stand for 25,000 epochs. A chain has at most 300 files.

A host writes a snapshot in the background, and the barrier of a later epoch names the snapshot. If
the host ends before that barrier, the snapshot is useless. For example, a scheduled run ends by
itself after one or two epochs. So a snapshot begins only when the host itself has written, since
its restore, a good part of the bytes that the snapshot replaces.

Runs too short for a snapshot in the background write the snapshot in parts. If a snapshot is due at
a restore, the host writes a part: a range of key groups. The first epoch waits for the part, and
the epoch's barrier names the part. A part begins at the key group with rows in the most changelogs
(the lowest such key group), so successive parts pass over all key groups. The part takes in key
groups until no snapshot is due any more, so parts keep pace with changes. There are two bounds:

    at least 1/16 of the entries   because each part is a file and cuts older handles in two; a part
                                   at the end of the range may be smaller
    at most 1/4 of the entries     however much is due, so no epoch waits for a whole snapshot; but
                                   a key group is never divided

A state of few entries and bytes is one part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import accumulate, takewhile

import numpy as np
import numpy.typing as npt

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle, bytes_of
from spark_state.checkpointing.kept_state import ADDED_TIMES, KeptState, has_database
from spark_state.checkpointing.restore_plan import Handles

MANY_FILES = 200
# Upper bound of the bytes of all files of a merge, because a merge has all their rows in memory.
MERGED_BYTES = 32 << 20
_LEAST_MERGED = 16
FEW_ENTRIES = 10_000
FEW_BYTES = 8 << 20

_LARGEST_PART = 4
_SMALLEST_PART = 16
# Bounds for parts. With parts, a chain has about twice as many changelogs as an average key group
# has rows in, and more handles than files, because a part cuts handles in two.
_MANY_CHANGELOGS = MANY_FILES // 2
_MANY_HANDLES = 5 * MANY_FILES // 2
_MANY_RANGES = 4
# A range also takes in a gap between worn key groups if outdated bytes are this share of the gap's
# entries, or if the gap's entries are this small a share of all entries.
_NEARLY_WORN = 0.5
_SMALL_GAP = 1 / 64
# The estimate from whole files is wrong after a snapshot has replaced a part of a file, and if
# entries grow or shrink. So every tenth changelog leads to an exact count.
_CHANGELOGS_UNTIL_COUNTED = 10
# Tolerance in bytes, because shares of files are not whole numbers.
_ROUNDING = 0.5
# Share of the bytes to replace that the host itself must have written since its restore.
_OWN = 0.75


def may_be_due(
    handles: Collection[StateHandle], entries: int, min_changelogs: int, *, adds: bool
) -> bool:
    """Return True if a snapshot or merge may be due, so that the caller should measure the state by
    key group (see KeptState) and call `due`. Most epochs do without the measurement (I7).

    `entries`: number of entries of the state; `min_changelogs`: number of changelogs before a
    snapshot may replace changelogs; `adds`: True if snapshots are incremental, see KeptState.of.
    """
    files = {handle.name: handle for handle in handles}.values()
    if len(files) >= MANY_FILES or len(handles) >= _MANY_HANDLES:
        return True
    changelogs = [handle for handle in files if handle.kind == "changelog"]
    if len(changelogs) < min_changelogs:
        return False
    if not len(changelogs) % _CHANGELOGS_UNTIL_COUNTED:
        return True
    others = [handle for handle in files if handle.kind == "snapshot"] or changelogs
    rows = max(sum(handle.rows for handle in others), 1)
    # Lower than the exact limit by half the state, because entries are larger in some key groups.
    held, least = (changelogs, 0.5) if adds else (files, 1.5)
    if adds and has_database(files):
        least /= ADDED_TIMES
    return bytes_of(held) * rows >= least * bytes_of(others) * entries


@dataclass(frozen=True, slots=True)
class Merge:
    """The decision to merge the handles of a chain from index `first` (included) to `end`
    (excluded) into one changelog."""

    first: int
    end: int


def due(
    kept: KeptState, own: KeptState, single: Handles, min_changelogs: int
) -> Merge | tuple[KeyGroupRange, ...]:
    """Return the work that is due in the background: a merge, or the key groups of a snapshot
    (empty if nothing is due).

    `kept`: the measured state in all handles; `own`: measured only in the handles that the host
    has added since its restore; `single`: the changelogs at the end of the chain that may be
    merged and are not merged yet.
    """
    small = _small_last(kept, single)
    is_rest_short = len(kept.handles) - len(small) < MANY_FILES
    if _is_long(kept) and is_rest_short and not _is_outdated(kept):
        first = len(kept.handles) - len(small)
        number = _at_once(small)
        is_enough = number >= MANY_FILES / 2 or number < len(small)
        return Merge(first, first + number) if is_enough else ()
    return ranges_due(kept, own, min_changelogs)


def _small_last(kept: KeptState, single: Handles) -> Handles:
    """Return as many changelogs from the end of `single` as fit into half the bytes of the state,
    so that a merge writes less than a snapshot. Return no changelogs if the changelogs are so large
    that one merge can read only a few."""
    number = _fitting(reversed(single), kept.entries.sum() / 2)
    small = single[len(single) - number :]
    return small if _at_once(small) >= min(len(small), _LEAST_MERGED) else ()


def _at_once(changelogs: Handles) -> int:
    """Return how many of the changelogs, from the first on, one merge reads at once."""
    return _fitting(changelogs, MERGED_BYTES)


def _fitting(files: Iterable[StateHandle], most_bytes: float) -> int:
    """Return how many of the files, from the first on, have at most `most_bytes` together."""
    sizes = accumulate(bytes_of([handle]) for handle in files)
    return sum(1 for _ in takewhile(lambda size: size <= most_bytes, sizes))


def _is_long(kept: KeptState) -> bool:
    return len(_names(kept)) >= MANY_FILES or len(kept.handles) >= _MANY_HANDLES


def _is_outdated(kept: KeptState) -> bool:
    return bool(kept.outdated.sum() + _ROUNDING >= kept.entries.sum())


def ranges_due(kept: KeptState, own: KeptState, min_changelogs: int) -> tuple[KeyGroupRange, ...]:
    """Return the key groups of the snapshot that is due; empty if no snapshot is due. `kept`: the
    measured state in all handles; `own`: measured only in the handles that the host has added since
    its restore."""
    if _is_long(kept) and len(_names(own)) >= MANY_FILES / 2:
        return _ranges(kept, kept.changelogs > 0)
    changelogs, own_changelogs = _names(kept, "changelog"), _names(own, "changelog")
    if len(changelogs) < min_changelogs or len(own_changelogs) < _OWN * min_changelogs:
        return ()
    if not _is_outdated(kept):
        return ()
    ranges = _ranges(kept, (kept.outdated + _ROUNDING >= kept.entries) & (kept.held > 0))
    of_ranges = np.zeros(len(kept.key_groups), bool)
    for key_groups in ranges:
        of_ranges[key_groups.start - kept.key_groups.start :][: len(key_groups)] = True
    replaced, written_here = kept.entries[of_ranges].sum(), own.changed[of_ranges].sum()
    return ranges if kept.times * written_here >= _OWN * replaced else ()


def _names(kept: KeptState, *kinds: str) -> set[str]:
    return {handle.name for handle in kept.handles if not kinds or handle.kind in kinds}


def _ranges(kept: KeptState, is_worn: npt.NDArray[np.bool_]) -> tuple[KeyGroupRange, ...]:
    """Join worn key groups to a few ranges, which may include key groups that are not worn."""
    if not is_worn.any() or _is_small(kept):
        return (kept.key_groups,)
    bounds = np.flatnonzero(np.diff(np.concatenate(([False], is_worn, [False]))))
    ranges = [(int(start), int(end)) for start, end in bounds.reshape(-1, 2)]
    joined = [(0, 0)]
    for start, end in (*ranges, (len(is_worn), len(is_worn))):
        if _is_cheap(kept, joined[-1][1], start):
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    joined = [(start, end) for start, end in joined if start < end]
    while len(joined) > _most_ranges(kept):
        gaps = [_cost(kept, joined[n][1], joined[n + 1][0]) for n in range(len(joined) - 1)]
        n = int(np.argmin(gaps))
        joined[n : n + 2] = [(joined[n][0], joined[n + 1][1])]
    first = kept.key_groups.start
    return tuple(KeyGroupRange(first + start, first + end - 1) for start, end in joined)


def _most_ranges(kept: KeptState) -> int:
    """Return how many ranges a snapshot may have. The number is bounded, because each range cuts
    older handles, and the parts of the older handles between the ranges remain in the chain."""
    return min(_MANY_RANGES, max(1, _MANY_HANDLES // (2 * len(kept.handles))))


def _is_cheap(kept: KeptState, start: int, end: int) -> bool:
    """Return True if the key groups from `start` to before `end` are nearly worn, or small."""
    entries, outdated = kept.entries[start:end].sum(), kept.outdated[start:end].sum()
    is_small = entries <= _SMALL_GAP * kept.entries.sum()
    return bool(is_small or outdated >= _NEARLY_WORN * entries)


def _cost(kept: KeptState, start: int, end: int) -> float:
    """Return by how many bytes the entries of these key groups exceed the outdated bytes."""
    return float((kept.entries[start:end] - kept.outdated[start:end]).sum())


def part_due(kept: KeptState, min_changelogs: int) -> KeyGroupRange | None:
    """Return the key groups of the next part of a snapshot, which the first epoch after a restore
    writes and names; None if no part is due."""
    first = int(np.argmax(kept.changelogs))
    has_many_handles = len(kept.handles) >= _MANY_HANDLES
    is_long = kept.changelogs[first] >= min(min_changelogs, _MANY_CHANGELOGS)
    outdated, changelogs, entries = (kept.outdated.sum(), kept.changelogs.sum(), kept.entries.sum())
    most_changelogs = _MANY_CHANGELOGS * len(kept.key_groups)
    is_due = outdated >= entries or changelogs >= most_changelogs
    if not has_many_handles and not (is_long and is_due):
        return None
    if _is_small(kept):
        return kept.key_groups
    # For each possible last key group: the bytes written, and True if a snapshot is still due
    # afterwards.
    written = np.cumsum(kept.entries[first:])
    leaves_due = (outdated - np.cumsum(kept.outdated[first:]) >= entries) | (
        changelogs - np.cumsum(kept.changelogs[first:]) >= most_changelogs
    )
    is_enough = (written * _SMALLEST_PART >= entries) & ~leaves_due & (not has_many_handles)
    fitting = max(1, int(np.count_nonzero(written * _LARGEST_PART <= entries)))
    enough = int(np.argmax(is_enough)) + 1 if is_enough.any() else len(written)
    start = kept.key_groups.start + first
    return KeyGroupRange(start, start + min(fitting, enough) - 1)


def _is_small(kept: KeptState) -> bool:
    """Return True if writing the state takes little longer than a request to an object store. The
    files hold each entry at least once, so their bytes bound the size of the state."""
    return bool(kept.number.sum() <= FEW_ENTRIES and bytes_of(kept.handles) <= FEW_BYTES)
