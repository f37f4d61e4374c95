"""How much of a subtask's state its files hold, by key group: what decisions on snapshots count.

A file tells its bytes and its rows. The bytes of a key group are its share of the rows; what a
snapshot of it would have is what its entries took in the newest snapshot of it, or, before there
is one, what a row of its changelogs takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle, bytes_of
from spark_state.checkpointing.restore_plan import Handles

Counts = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.float64]
RowsOfFiles = Mapping[str, Counts]
"""By name of a file, how many rows it has of each key group of a subtask, in order."""


# RocksDB makes one table of several, and a snapshot has those that are new. The more often it is
# taken, the more of them it has that are soon replaced, and the less a restore has to do beside
# opening the tables.
ADDED_TIMES = 10


@dataclass(frozen=True, slots=True)
class KeptState:
    """The state of `key_groups`, which is kept in `handles`. For each key group in order: in how
    many `changelogs` it has rows, the bytes `changed` in these, the bytes `held` in all files, the
    bytes that its `entries` would have in a snapshot, and their `number`; and the bytes that are
    `outdated`: a snapshot would rid the files of what was put again or deleted since. `times`: how
    often what changed counts."""

    key_groups: KeyGroupRange
    handles: Handles
    changelogs: Counts
    changed: Bytes
    held: Bytes
    entries: Bytes
    number: Counts
    outdated: Bytes
    times: int = 1

    @classmethod
    def of(
        cls,
        key_groups: KeyGroupRange,
        handles: Handles,
        rows: RowsOfFiles,
        entries: Sequence[int],
        *,
        adds: bool,
    ) -> KeptState:
        """What is kept in `handles`, which are of these key groups only. A file that `rows` does
        not know counts for all of its key groups alike. `adds`: a snapshot would add to a database,
        and not write what did not change. So what changelogs hold counts as outdated for it, and
        ten times if there is a database: it is due when a tenth of the state has changed."""
        changelogs = np.zeros(len(key_groups), np.int64)
        changed, held = np.zeros(len(key_groups)), np.zeros(len(key_groups))
        for handle in handles:
            place = _place(handle, key_groups)
            shares = _shares(handle, rows, place)
            size = shares * bytes_of([handle])
            held[place] += size
            if handle.kind == "changelog":
                changelogs[place] += shares > 0
                changed[place] += size
        number = np.array(entries, np.int64)
        in_snapshot = number * _bytes_of_an_entry(handles, key_groups)
        times = ADDED_TIMES if adds and has_database(handles) else 1
        return cls(
            key_groups,
            handles,
            changelogs,
            changed,
            held,
            in_snapshot,
            number,
            outdated=times * changed if adds else held - in_snapshot,
            times=times,
        )


def has_database(handles: Iterable[StateHandle]) -> bool:
    """Whether one of the files is a database, to which a snapshot may add."""
    return any(handle.kind == "database" for handle in handles)


def rows_of_snapshot(file: StateHandle, key_groups: KeyGroupRange, entries: Counts) -> Counts:
    """How many rows of each key group a snapshot has that was taken of so many entries."""
    rows = np.zeros(len(key_groups), np.int64)
    place = _place(file, key_groups)
    rows[place] = entries[place]
    return rows


def _place(handle: StateHandle, key_groups: KeyGroupRange) -> slice:
    first = handle.key_groups.start - key_groups.start
    return slice(first, first + len(handle.key_groups))


def _shares(handle: StateHandle, rows: RowsOfFiles, place: slice) -> Bytes:
    """The part of a file's rows that each key group of a handle has."""
    if handle.name in rows:
        return rows[handle.name][place] / max(handle.rows, 1)
    of_file = handle.key_groups if handle.tail is None else handle.tail.key_groups
    return np.full(len(handle.key_groups), 1 / len(of_file))


def _bytes_of_an_entry(handles: Handles, key_groups: KeyGroupRange) -> Bytes:
    """What an entry of each key group takes in a snapshot as rows, about."""
    changelogs = {h.name: h for h in handles if h.kind == "changelog"}.values()
    all_rows = sum(handle.rows for handle in changelogs)
    per_entry = np.full(len(key_groups), bytes_of(changelogs) / max(all_rows, 1))
    for handle in handles:
        if handle.kind == "snapshot" and handle.rows:
            per_entry[_place(handle, key_groups)] = bytes_of([handle]) / handle.rows
    return per_entry


def without_empty_ends(handles: Handles, key_groups: KeyGroupRange, rows: RowsOfFiles) -> Handles:
    """The same state in `handles` that leave out the key groups, at both ends of a changelog's
    range, of which it has no rows; the changelog itself if it has none at all."""
    narrowed = (_narrowed(handle, key_groups, rows) for handle in handles)
    return tuple(handle for handle in narrowed if handle is not None)


def _narrowed(
    handle: StateHandle, key_groups: KeyGroupRange, rows: RowsOfFiles
) -> StateHandle | None:
    if handle.kind != "changelog" or handle.name not in rows:
        return handle
    has_rows = np.flatnonzero(rows[handle.name][_place(handle, key_groups)])
    if not len(has_rows):
        return None
    start = handle.key_groups.start
    first, last = start + int(has_rows[0]), start + int(has_rows[-1])
    return replace(handle, key_groups=KeyGroupRange(first, last))
