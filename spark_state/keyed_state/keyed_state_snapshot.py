"""Snapshots of keyed state: what writes itself, and where to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from checkpoint_store.files.database_contents import DatabaseContents
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import FilePart, StateHandle


class RowFiles(Protocol):
    """Where a snapshot writes rows that every backend can read."""

    def write_snapshot(self, rows: pa.Table, key_groups: KeyGroupRange) -> StateHandle:
        """A file of rows of these key groups, sorted by key group and key; durable on return."""


class SnapshotFiles(RowFiles, Protocol):
    """Where any snapshot writes itself."""

    def write_database(
        self,
        folder: Path,
        contents: DatabaseContents,
        uploaded: Mapping[str, FilePart],
        key_groups: KeyGroupRange,
    ) -> StateHandle:
        """A database in a local folder; durable on return. `uploaded`: those of its tables that are
        in the store, by their local names."""


class KeyedStateSnapshot(Protocol):
    """The entries of all states in `key_groups` at one moment. Another thread may write them."""

    key_groups: KeyGroupRange

    def write(self, files: SnapshotFiles) -> tuple[StateHandle, ...]:
        """Write it, once, and release it; the files, which hold all of its entries."""

    def release(self) -> None:
        """Give up what is not written yet. Safe to call again."""
