"""Changelogs at the end of a chain, on their way to become one while epochs go on.

A chain of very many small files makes barriers long and restores slow, and a snapshot would write a
large state because of few changes. The merged changelog is of the epoch of the last one. The
barriers of later epochs name it, so no reader takes it for what one of them changed. A restore
applies it like any other.

To merge is not to read the backend, which has gone on: the files are read again, some key groups at
a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from spark_state.checkpointing.kept_state import Bytes, Counts
from spark_state.checkpointing.restore_plan import Handles
from spark_state.host.epoch_attempt import EpochAttempt
from spark_state.keyed_state.keyed_state_snapshot import SnapshotFiles
from spark_state.keyed_state.merged_changes import merged_changes
from spark_state.keyed_state.state_rows import rows_by_key_group
from spark_state.state_descriptor import StateKind

# So many bytes of files are rows in memory at once, or those of one key group if they are more.
BYTES_AT_ONCE = 16 << 20


@dataclass(slots=True)
class ChangelogMerge:
    """Stands for a KeyedStateSnapshot: what the changelogs `merged` of a subtask with these
    `key_groups` come to. `attempt` reads and writes files; `changed`: how many bytes they have of
    each key group; `kinds`: those of the states.

    `rows`: how many rows of each key group a file has that was written, by its name.
    """

    key_groups: KeyGroupRange
    attempt: EpochAttempt
    merged: Handles
    changed: Bytes
    kinds: Mapping[str, StateKind]
    rows: dict[str, Counts] = field(default_factory=dict)

    def write(self, _: SnapshotFiles) -> Handles:
        """Read the files and write what they come to; durable on return."""
        return tuple(self._files())

    def release(self) -> None:
        """Nothing is held."""

    def _files(self) -> Iterator[StateHandle]:
        key_names = self.attempt.spec.processor.key_columns.names
        for key_groups in self._parts():
            changelogs = [
                pa.Table.from_batches(read)
                for _, batches in self.attempt.checkpoints.read_states(self.merged, key_groups)
                if (read := [*batches])
            ]
            if changelogs:
                rows = merged_changes(key_names, self.kinds, changelogs)
                file = self.attempt.write_changelog(rows, key_groups)
                self.rows[file.name] = rows_by_key_group(rows, self.key_groups)
                yield file

    def _parts(self) -> Iterator[KeyGroupRange]:
        """The key groups, in ranges of about as many bytes as may be in memory."""
        part_of = (np.cumsum(self.changed) - 1) // BYTES_AT_ONCE
        bounds = np.flatnonzero(np.diff(part_of)) + 1
        first = self.key_groups.start
        starts = [first, *(first + bounds).tolist()]
        ends = [*(first + bounds - 1).tolist(), self.key_groups.end]
        return map(KeyGroupRange, starts, ends)
