"""The protocols of snapshots of keyed state, and of the files that snapshots write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from checkpoint_store.files.database_contents import DatabaseContents
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import FilePart, StateHandle


class RowFiles(Protocol):
    """Files for snapshot rows that every backend can read."""

    def write_snapshot(self, rows: pa.Table, key_groups: KeyGroupRange) -> StateHandle:
        """Write a file with the rows of `key_groups`, sorted by key group and key. Durable on
        return."""


class SnapshotFiles(RowFiles, Protocol):
    """Files for snapshots of any kind."""

    def write_database(
        self,
        folder: Path,
        contents: DatabaseContents,
        uploaded: Mapping[str, FilePart],
        key_groups: KeyGroupRange,
    ) -> StateHandle:
        """Write the database of a local folder. Durable on return. `uploaded`: the tables of the
        database already in the store, by local name."""


class KeyedStateSnapshot(Protocol):
    """The entries of all states in `key_groups` at one moment. Another thread may write the
    snapshot."""

    key_groups: KeyGroupRange

    def write(self, files: SnapshotFiles) -> tuple[StateHandle, ...]:
        """Write the snapshot, once, and release the snapshot. Returns the files, which have all
        entries."""

    def release(self) -> None:
        """Give up all data not yet written. Safe to call again."""
