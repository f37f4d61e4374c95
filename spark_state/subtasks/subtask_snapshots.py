"""Begins snapshots and merges of changelogs for a subtask when due, and chooses the barrier that
names the new files.

At most one snapshot or merge is under way. snapshot_policy says when to begin, pending_snapshot
when a barrier may name the files. If a write fails, or if the orphan sweep deletes the files, no
epoch fails: the changelogs still hold everything. After several failures in a row, the next try
waits for some epochs; each further failure about doubles the number of epochs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from itertools import takewhile

import numpy as np

from checkpoint_store.epochs.operator_layout import parse_state_file
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from spark_state.checkpointing.kept_state import (
    Counts,
    KeptState,
    RowsOfFiles,
    has_database,
    without_empty_ends,
)
from spark_state.checkpointing.restore_plan import Handles
from spark_state.checkpointing.snapshot_policy import Merge, due, may_be_due, part_due
from spark_state.errors import StateHostError
from spark_state.keyed_state.full_snapshot import KeyedStateSnapshot
from spark_state.subtasks.changelog_merge import ChangelogMerge
from spark_state.subtasks.epoch_attempt import EpochAttempt
from spark_state.subtasks.maintenance import Maintenance
from spark_state.subtasks.pending_snapshot import (
    PendingSnapshot,
    Replaced,
    SnapshotWriting,
    Writing,
)
from spark_state.subtasks.subtask_backends import Backend
from spark_state.subtasks.unnamed_files import UnnamedFiles

_log = logging.getLogger(__name__)

_MOST_DOUBLINGS = 6


class SubtaskSnapshots:
    """The snapshots of a subtask. `url`: the operator's store; `key_groups`: the subtask's key
    groups; `maintenance`: threads that write snapshots.

    `failed`: number of snapshots and merges in a row that failed, up to now.
    """

    def __init__(self, url: str, key_groups: KeyGroupRange, maintenance: Maintenance) -> None:
        self._url = url
        self._key_groups = key_groups
        self._maintenance = maintenance
        self._pending: PendingSnapshot | None = None
        self._restored: frozenset[str] = frozenset()
        self._rows: dict[str, Counts] = {}
        self._merged: set[str] = set()
        self._merge_has_failed = False
        self._pause_epochs = 0
        self.failed = 0

    def let_go(self) -> bool:
        """Give up the pending snapshot if its writing has not begun. Return False if a snapshot is
        being written, because the snapshot keeps the state in memory; otherwise True. A merge keeps
        no state in memory."""
        pending = self._pending
        if pending is not None:
            pending.abandon()
            if not (pending.done() or pending.is_merge()):
                return False
            self._pending = None
        return True

    def begin_anew(self, restored: Handles) -> None:
        """Forget earlier files, and give up a pending snapshot: the state is being restored from
        the files `restored`."""
        self._restored = frozenset(handle.name for handle in restored)
        self._rows, self._merged, self._merge_has_failed = {}, set(), False
        if self._pending is not None:
            self._pending.abandon()
            self._pending = None

    def note_rows(self, rows: RowsOfFiles) -> None:
        """Note the row counts of files that were read or written."""
        self._rows.update(rows)

    def begin_part(self, restored: Handles, attempt: EpochAttempt, backend: Backend) -> None:
        """Begin a part, a snapshot of some key groups, if a part is due. Call this after the
        restore of a run's first epoch. The barrier of this epoch waits for the part, see
        `named`."""
        kept = self._kept(restored, backend, attempt)
        part = part_due(kept, attempt.settings.min_epochs_for_snapshot)
        if part is not None:
            self._begin([part], restored, attempt, backend, is_awaited=True)

    def begin_if_due(self, handles: Handles, attempt: EpochAttempt, backend: Backend) -> None:
        """Begin a snapshot or merge if one is due; the barrier of a later epoch will name the new
        files. Call this after the barrier that names `handles` is published."""
        kept_names = {handle.name for handle in handles}
        self._rows = {name: rows for name, rows in self._rows.items() if name in kept_names}
        self._merged &= kept_names
        if self._pause_epochs:
            self._pause_epochs -= 1
            return
        least = attempt.settings.min_epochs_for_snapshot
        if self._pending is not None or not may_be_due(
            handles, len(backend), least, adds=_adds(attempt)
        ):
            return
        kept = self._kept(handles, backend, attempt)
        own = tuple(handle for handle in handles if handle.name not in self._restored)
        of_run = self._kept(own, backend, attempt)
        next_step = due(kept, of_run, self._single(handles, attempt), least)
        if isinstance(next_step, Merge):
            self._begin_merge(next_step, handles, attempt, backend)
        elif next_step:
            self._begin(next_step, handles, attempt, backend, is_awaited=False)

    def _begin(
        self,
        wanted: Sequence[KeyGroupRange],
        held: Handles,
        attempt: EpochAttempt,
        backend: Backend,
        *,
        is_awaited: bool,
    ) -> None:
        """Begin to write a snapshot of the key groups `wanted`, if the local disk has room. `held`:
        the files of the state.

        An incremental RocksDB snapshot covers all key groups, because it writes only files that the
        store lacks. But the first incremental snapshot is as large as the state. So if an epoch
        waits for the snapshot (`is_awaited`), and the store has no RocksDB files of the state yet,
        the snapshot is not incremental: it has the rows of the key groups `wanted`.
        """
        adds = attempt.spec.backend.incremental and (not is_awaited or has_database(held))
        taken: list[KeyedStateSnapshot] = []
        try:
            incremental = backend.incremental_snapshot(held) if adds else None
            if incremental is not None:
                taken.append(incremental)
            else:
                taken.extend(backend.snapshot(key_groups) for key_groups in wanted)
        except StateHostError:
            for of_range in taken:
                of_range.release()
            _log.exception("a snapshot cannot be taken; changelogs are kept instead")
            self._note_failure()
            return
        entries = np.array(backend.entries_by_key_group(), np.int64)
        writing = SnapshotWriting(taken, attempt.files, self._key_groups, entries)
        self._submit(writing, Replaced.all(held), attempt, is_awaited=is_awaited)

    def _begin_merge(
        self, merge: Merge, held: Handles, attempt: EpochAttempt, backend: Backend
    ) -> None:
        kinds = {state.name: state.kind for state in backend.descriptors}
        writing = ChangelogMerge(self._key_groups, held[merge.first : merge.end], attempt, kinds)
        replaced = Replaced(held, merge.first, merge.end)
        self._submit(writing, replaced, attempt, is_awaited=False)

    def _submit(
        self, writing: Writing, replaced: Replaced, attempt: EpochAttempt, *, is_awaited: bool
    ) -> None:
        threads, queue = self._maintenance.snapshots, self._url
        if is_awaited:
            # Parts queue by subtask: otherwise the subtasks of a store would wait in a row.
            threads, queue = self._maintenance.parts, f"{self._url} subtask {attempt.by.subtask}"
        unnamed = UnnamedFiles(attempt, self._maintenance.clock)
        begin = partial(threads.submit, queue)
        self._pending = PendingSnapshot(writing, replaced, unnamed, begin, is_awaited)

    def _single(self, handles: Handles, attempt: EpochAttempt) -> Handles:
        """Return the changelogs at the end of the chain that may be merged. These are changelogs
        that were written by this run and are not merged yet. Changelogs of earlier runs are not
        merged, because a state may be deleted between two runs.

        Empty if snapshots are incremental, because an incremental snapshot costs less than a merge.
        Empty after a failed merge, because a changelog may be damaged, and a snapshot repairs the
        damage.
        """
        if _adds(attempt) or self._merge_has_failed:
            return ()
        named_before = self._restored | self._merged

        def is_single(handle: StateHandle) -> bool:
            directory = parse_state_file(handle.name)
            return (
                handle.kind == "changelog"
                and handle.name not in named_before
                and directory is not None
                and directory.run_number == attempt.by.run.number
            )

        return tuple(takewhile(is_single, reversed(handles)))[::-1]

    def _kept(self, handles: Handles, backend: Backend, attempt: EpochAttempt) -> KeptState:
        entries = backend.entries_by_key_group()
        return KeptState.of(self._key_groups, handles, self._rows, entries, adds=_adds(attempt))

    def named(self, base: Handles, attempt: EpochAttempt) -> Handles:
        """Return the files for the attempt's barrier, without the attempt's own changelog. These
        are the files `base` of the epoch's base. If a snapshot or merge is finished, its new files
        replace files of `base`."""
        if self._pending is None:
            return base
        if self._pending.is_awaited:
            self._pending.wait(attempt.check)
        if not self._pending.done():
            return base
        if self._pending.has_failed():
            # No merge until a barrier names a snapshot: a failed snapshot does not repair the
            # chain.
            self._merge_has_failed |= self._pending.is_merge()
            self._pending = None
            self._note_failure()
            return base
        handles = self._pending.shorten(base)
        if handles != base and self._pending.is_lost(attempt.settings):
            self._pending = None
            self._note_failure()
            return base
        self.failed = 0
        for part in self._pending.written():
            self._rows.update(part.rows)
            if self._pending.is_merge():
                self._merged.update(part.rows)
            else:
                self._merge_has_failed = False
        if handles == base:
            self._pending = None  # otherwise kept for another attempt of this epoch
            return base
        return without_empty_ends(handles, self._key_groups, self._rows)

    def show_alive(self) -> None:
        """Put a sign of life, if due, beside the files of a pending snapshot or merge, see
        unnamed_files."""
        pending = self._pending
        if pending is not None:
            pending.unnamed.show_alive(partial(self._maintenance.signs.submit, self._url))

    def _note_failure(self) -> None:
        self._pause_epochs = 2 ** min(self.failed, _MOST_DOUBLINGS) - 1
        self.failed += 1


def _adds(attempt: EpochAttempt) -> bool:
    """Return True if the operator's snapshots are incremental: RocksDB's own files, of which only
    new files are uploaded."""
    return attempt.spec.backend.kind == "rocksdb" and attempt.spec.backend.incremental
