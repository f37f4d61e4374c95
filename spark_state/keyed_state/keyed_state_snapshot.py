"""The protocol of snapshots of keyed state."""

from __future__ import annotations

from typing import Protocol

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.operators.epoch_files import AttemptFiles


class KeyedStateSnapshot(Protocol):
    """The entries of all states in `key_groups` at one moment. Another thread may write the
    snapshot."""

    key_groups: KeyGroupRange

    def write(self, files: AttemptFiles) -> tuple[StateHandle, ...]:
        """Write the snapshot, and release the snapshot. Call once. Returns the files, which
        together have all entries."""

    def release(self) -> None:
        """Give up all data not yet written. Safe to call again."""
