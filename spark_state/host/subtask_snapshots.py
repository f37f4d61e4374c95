"""The snapshots of a subtask: when one begins, and which barrier names it.

At most one is under way. See snapshot_policy for when, pending_snapshot for what may be named.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.checkpointing.restore_plan import Handles
from spark_state.checkpointing.snapshot_policy import Restored, part_due, snapshot_is_due
from spark_state.errors import StateHostError
from spark_state.host.epoch_attempt import EpochAttempt
from spark_state.host.maintenance import Maintenance
from spark_state.host.pending_snapshot import PendingSnapshot
from spark_state.host.subtask_backends import Backend
from spark_state.keyed_state.keyed_state_snapshot import KeyedStateSnapshot

_log = logging.getLogger(__name__)


class SubtaskSnapshots:
    """The snapshots of one subtask of the store at `url`. `maintenance` has the threads that write
    them."""

    def __init__(self, url: str, maintenance: Maintenance) -> None:
        self._url = url
        self._maintenance = maintenance
        self._pending: PendingSnapshot | None = None
        self._restored: frozenset[str] = frozenset()

    def begin_anew(self, restored: Handles) -> None:
        """The state was read again from these files, so a snapshot under way is not one of it."""
        self._restored = frozenset(handle.name for handle in restored)
        if self._pending is not None:
            self._pending.abandon()
            self._pending = None

    def begin_part(self, restored: Restored, attempt: EpochAttempt, backend: Backend) -> None:
        """After the restore of a run's first epoch: begin a part if one is due; `named` waits."""
        part = part_due(restored, attempt.settings.min_epochs_for_snapshot)
        if part is not None:
            # A part waits for no other: the subtasks of a store in one host would wait in a row.
            queue = f"{self._url} subtask {attempt.task.subtask}"
            snapshot = _taken(backend, part, restored.handles, attempt)
            if snapshot is None:
                return
            self._pending = PendingSnapshot(
                snapshot,
                restored.handles,
                attempt,
                lambda job: self._maintenance.parts.submit(queue, job),
                _useful_seconds(attempt),
                is_awaited=True,
            )

    def begin_if_due(self, handles: Handles, attempt: EpochAttempt, backend: Backend) -> None:
        """After the barrier of `handles`: a later one is to name a snapshot instead of them."""
        own = [handle for handle in handles if handle.name not in self._restored]
        least = attempt.settings.min_epochs_for_snapshot
        if self._pending is None and snapshot_is_due(handles, own, len(backend), least):
            snapshot = _taken(backend, None, handles, attempt)
            if snapshot is None:
                return
            self._pending = PendingSnapshot(
                snapshot,
                handles,
                attempt,
                lambda job: self._maintenance.snapshots.submit(self._url, job),
                _useful_seconds(attempt),
                is_awaited=False,
            )

    def named(self, base: Handles, check: Callable[[], None]) -> Handles:
        """The files for the barrier of the epoch after `base`, without its changes."""
        if self._pending is None:
            return base
        if self._pending.is_awaited:
            self._pending.wait(check)
        if not self._pending.done():
            return base
        handles = self._pending.shorten(base)
        if handles == base:
            self._pending = None  # else it is kept for another attempt of this epoch
        return handles


def _taken(
    backend: Backend, key_groups: KeyGroupRange | None, held: Handles, attempt: EpochAttempt
) -> KeyedStateSnapshot | None:
    """A snapshot of these key groups of a state that is `held` in files; None if the local disk
    takes none. The changelogs still hold everything, and a later epoch tries again.

    One that adds to a database is of all key groups: what it has to write is what is due. The first
    one of a database is as long as the state, so an epoch that waits for it writes a part instead.
    """
    adds = key_groups is None or any(handle.kind == "database" for handle in held)
    try:
        if attempt.spec.backend.incremental and adds:
            incremental = backend.incremental_snapshot(held)
            if incremental is not None:
                return incremental
        return backend.snapshot(key_groups)
    except StateHostError:
        _log.exception("a snapshot cannot be taken; changelogs are kept instead")
        return None


def _useful_seconds(attempt: EpochAttempt) -> float:
    """After that the orphan sweep may take what no barrier names."""
    return attempt.settings.orphan_grace_seconds / 2
