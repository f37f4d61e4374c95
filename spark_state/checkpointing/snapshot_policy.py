"""When a subtask replaces changelogs by a snapshot, and of which key groups.

Bytes of files are outdated when what they put was put again or deleted since: the files hold more
than the entries would be written with. A snapshot is due when at least as many are outdated as it
would write, so a restore needs at most about twice the state. It is of the *worn* key groups only:
those of whose own bytes that is true. So key groups that change little are not written again
because others change much, and neither are those that only grow.

A snapshot names contiguous ranges, and each of them is files of its own and cuts handles of others
in two. So ranges are few, and take in what lies between worn key groups if that is nearly worn or
small, or if there were too many ranges otherwise. Whatever they take in, the bytes written stay
within the outdated ones that they replace: as many are outdated as all entries have, and in the key
groups that stay fewer than theirs have. No byte of a changelog becomes outdated twice, so all
snapshots together have no more bytes than all changelogs (I7).

`MANY_FILES` bounds the length of a chain, and so of a manifest, where a large state changes little
or was written by many subtasks. Then changelogs at its end become one, if they are small beside the
state: a change is written a second time, and a third time in a snapshot. A merge reads them at
once, so there is a bound for their bytes. If what cannot be merged makes the chain long, all key
groups are written that have changed. Merged changelogs are not merged again; about 200 of them,
which stand for 25,000 epochs, make a snapshot due. A chain has at most 300 files.

A snapshot is written while epochs go on, and the barrier of a later one names it. A host that ends
before has written it for nothing, as where a scheduled run ends by itself after an epoch or two. So
one begins only once the host has written, since its restore, a good part of what it replaces.

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
# A merge has the rows of so many bytes of files in memory.
MERGED_BYTES = 32 << 20
_LEAST_MERGED = 16
FEW_ENTRIES = 10_000
FEW_BYTES = 8 << 20

_LARGEST_PART = 4
_SMALLEST_PART = 16
# Parts leave a chain that has twice as many changelogs as a key group is kept in on average, and
# more handles than files, because a part cuts handles in two.
_MANY_CHANGELOGS = MANY_FILES // 2
_MANY_HANDLES = 5 * MANY_FILES // 2
_MANY_RANGES = 4
# What lies between worn key groups is taken in if this much of what its entries take is outdated,
# or if its entries are this small a part of all.
_NEARLY_WORN = 0.5
_SMALL_GAP = 1 / 64
# Files of which a snapshot has replaced a part, and entries that grow or shrink, mislead a look at
# whole files.
_CHANGELOGS_UNTIL_COUNTED = 10
# Bytes, because shares of files are no whole numbers.
_ROUNDING = 0.5
# What a host has to have written since its restore, of what makes a snapshot due.
_OWN = 0.75


def may_be_due(
    handles: Collection[StateHandle], entries: int, min_changelogs: int, *, adds: bool
) -> bool:
    """Whether it is worth while to count the bytes of each key group for `ranges_due`: they are
    not counted for most epochs (I7). `adds`: see KeptState."""
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
    # Half of the state less than must be there: an entry takes more in some key groups.
    held, least = (changelogs, 0.5) if adds else (files, 1.5)
    if adds and has_database(files):
        least /= ADDED_TIMES
    return bytes_of(held) * rows >= least * bytes_of(others) * entries


@dataclass(frozen=True, slots=True)
class Merge:
    """The handles of a chain from number `first` to before `end` are to become one changelog."""

    first: int
    end: int


def due(
    kept: KeptState, own: KeptState, single: Handles, min_changelogs: int
) -> Merge | tuple[KeyGroupRange, ...]:
    """What is to be written while epochs go on: a merge, or a snapshot of these key groups; of
    none if nothing is due.

    `own`: the same state, kept in those of the handles that came after the host's restore;
    `single`: the changelogs at the end of the chain that may be merged, and were not yet.
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
    """Those of the changelogs, from the end on, that are small beside the state all together: to
    merge them writes less than a snapshot would. None if only few of them can be read at once."""
    number = _fitting(reversed(single), kept.entries.sum() / 2)
    small = single[len(single) - number :]
    return small if _at_once(small) >= min(len(small), _LEAST_MERGED) else ()


def _at_once(changelogs: Handles) -> int:
    """How many of them, from the first on, are merged at once."""
    return _fitting(changelogs, MERGED_BYTES)


def _fitting(files: Iterable[StateHandle], most_bytes: float) -> int:
    """How many files, from the first on, have so many bytes together at most."""
    sizes = accumulate(bytes_of([handle]) for handle in files)
    return sum(1 for _ in takewhile(lambda size: size <= most_bytes, sizes))


def _is_long(kept: KeptState) -> bool:
    return len(_names(kept)) >= MANY_FILES or len(kept.handles) >= _MANY_HANDLES


def _is_outdated(kept: KeptState) -> bool:
    return bool(kept.outdated.sum() + _ROUNDING >= kept.entries.sum())


def ranges_due(kept: KeptState, own: KeptState, min_changelogs: int) -> tuple[KeyGroupRange, ...]:
    """The key groups to be written as a snapshot; none if it is not due. `own`: see due."""
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
    """Few ranges of key groups that have all worn ones."""
    if not is_worn.any() or _is_small(kept):
        return (kept.key_groups,)
    bounds = np.flatnonzero(np.diff(np.concatenate(([False], is_worn, [False]))))
    ranges = [(int(start), int(end)) for start, end in bounds.reshape(-1, 2)]
    if _is_cheap(kept, 0, ranges[0][0]):
        ranges[0] = (0, ranges[0][1])
    if _is_cheap(kept, ranges[-1][1], len(is_worn)):
        ranges[-1] = (ranges[-1][0], len(is_worn))
    joined = [ranges[0]]
    for start, end in ranges[1:]:
        if _is_cheap(kept, joined[-1][1], start):
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    while len(joined) > _most_ranges(kept):
        gaps = [_cost(kept, joined[n][1], joined[n + 1][0]) for n in range(len(joined) - 1)]
        n = int(np.argmin(gaps))
        joined[n : n + 2] = [(joined[n][0], joined[n + 1][1])]
    first = kept.key_groups.start
    return tuple(KeyGroupRange(first + start, first + end - 1) for start, end in joined)


def _most_ranges(kept: KeptState) -> int:
    """How many ranges a snapshot may have. Each cuts handles, which are then of what is between."""
    return min(_MANY_RANGES, max(1, _MANY_HANDLES // (2 * len(kept.handles))))


def _is_cheap(kept: KeptState, start: int, end: int) -> bool:
    """Whether the key groups from `start` to before `end` are nearly worn, or small."""
    entries, outdated = kept.entries[start:end].sum(), kept.outdated[start:end].sum()
    is_small = entries <= _SMALL_GAP * kept.entries.sum()
    return bool(is_small or outdated >= _NEARLY_WORN * entries)


def _cost(kept: KeptState, start: int, end: int) -> float:
    """The bytes that are written of these key groups although they are not worn."""
    return float((kept.entries[start:end] - kept.outdated[start:end]).sum())


def part_due(kept: KeptState, min_changelogs: int) -> KeyGroupRange | None:
    """The key groups of which the first epoch after a restore is to name a snapshot."""
    first = int(np.argmax(kept.changelogs))
    has_many_handles = len(kept.handles) >= _MANY_HANDLES
    is_long = kept.changelogs[first] >= min(min_changelogs, _MANY_CHANGELOGS)
    outdated, changelogs, entries = (
        kept.outdated.sum(),
        kept.changelogs.sum(),
        kept.entries.sum(),
    )
    most_changelogs = _MANY_CHANGELOGS * len(kept.key_groups)
    is_due = outdated >= entries or changelogs >= most_changelogs
    if not has_many_handles and not (is_long and is_due):
        return None
    if _is_small(kept):
        return kept.key_groups
    # What a part writes and leaves, for each key group that it may end with.
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
    """Whether writing the state takes little longer than a request to an object store. The files
    have each entry at least once."""
    return bool(kept.number.sum() <= FEW_ENTRIES and bytes_of(kept.handles) <= FEW_BYTES)
