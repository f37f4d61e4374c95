"""What a snapshot writes, as one table."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from spark_state.keyed_state.keyed_state_backend import KeyedStateSnapshot


@dataclass
class SnapshotTables:
    """SnapshotFiles in memory."""

    tables: list[tuple[pa.Table, KeyGroupRange]] = field(default_factory=list)

    def write_snapshot(self, rows: pa.Table, key_groups: KeyGroupRange) -> StateHandle:
        self.tables.append((rows, key_groups))
        name = f"snapshot-{len(self.tables)}"
        return StateHandle("snapshot", name, 1, "00", key_groups, 0, rows.num_rows)


def tables_of(snapshot: KeyedStateSnapshot) -> list[pa.Table]:
    """The rows of each of its files."""
    files = SnapshotTables()
    snapshot.write(files)
    return [table for table, _ in files.tables]
