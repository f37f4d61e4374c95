"""Size of a subtask's state in its files, by key group: the input of decisions on snapshots.

A handle has the number of bytes and of rows of a file. The bytes of a file are divided among the
key groups in proportion to their rows in the file. The size of a key group in a future snapshot is
an estimate: the number of entries times the bytes of an entry in the newest snapshot. If there is
no snapshot yet, the bytes of a row in the changelogs stand for the bytes of an entry.
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
"""For each file name, the number of rows in each key group of a subtask, in key group order."""


# Weight of changed bytes if a snapshot adds to a database. Each snapshot uploads only new RocksDB
# tables, and RocksDB merges tables all the time. Frequent snapshots upload more tables that a merge
# soon replaces, but leave less for a restore to do after it has opened the tables.
ADDED_TIMES = 10


@dataclass(frozen=True, slots=True)
class KeptState:
    """The state of `key_groups` in the files `handles`, measured for each key group in order.

    `changelogs`: number of changelogs with rows of the key group; `changed`: bytes in changelogs;
    `held`: bytes in all files; `entries`: bytes that a snapshot of all entries would have;
    `number`: number of entries; `outdated`: bytes that a snapshot would leave out, because later
    changes have replaced or deleted the values; `times`: weight of changed bytes, 1 or 10, see
    `of`. If snapshots are incremental, `outdated` is `times` * `changed`.
    """

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
        """Measure the state in `handles`, which belong to `key_groups` only.

        `rows`: row counts of files, by key group. If a file has no row counts, all its key groups
        count as having equally many rows. `entries`: number of entries of each key group. `adds`:
        True if snapshots are incremental: a snapshot does not write unchanged entries again. Then
        all bytes of changelogs count as outdated. If the store already has RocksDB files of the
        state, each byte of a changelog counts ten times, so that a snapshot is due when a tenth of
        the state has changed.
        """
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
    """Return True if one of the handles is a RocksDB database."""
    return any(handle.kind == "database" for handle in handles)


def rows_of_snapshot(file: StateHandle, key_groups: KeyGroupRange, entries: Counts) -> Counts:
    """Return the number of rows that snapshot `file` has in each key group of the subtask.
    `entries`: number of entries of each key group when the snapshot was taken."""
    rows = np.zeros(len(key_groups), np.int64)
    place = _place(file, key_groups)
    rows[place] = entries[place]
    return rows


def _place(handle: StateHandle, key_groups: KeyGroupRange) -> slice:
    first = handle.key_groups.start - key_groups.start
    return slice(first, first + len(handle.key_groups))


def _shares(handle: StateHandle, rows: RowsOfFiles, place: slice) -> Bytes:
    """Return the part (0 to 1) of a file's rows that belongs to each key group of the handle."""
    if handle.name in rows:
        return rows[handle.name][place] / max(handle.rows, 1)
    of_file = handle.key_groups if handle.tail is None else handle.tail.key_groups
    return np.full(len(handle.key_groups), 1 / len(of_file))


def _bytes_of_an_entry(handles: Handles, key_groups: KeyGroupRange) -> Bytes:
    """Estimate the bytes of one entry of each key group in a snapshot of rows."""
    changelogs = {h.name: h for h in handles if h.kind == "changelog"}.values()
    all_rows = sum(handle.rows for handle in changelogs)
    per_entry = np.full(len(key_groups), bytes_of(changelogs) / max(all_rows, 1))
    for handle in handles:
        if handle.kind == "snapshot" and handle.rows:
            per_entry[_place(handle, key_groups)] = bytes_of([handle]) / handle.rows
    return per_entry


def without_empty_ends(handles: Handles, key_groups: KeyGroupRange, rows: RowsOfFiles) -> Handles:
    """Narrow the handle of each changelog to the key groups from its first to its last row, and
    drop a changelog without rows. The returned handles give the same state."""
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
