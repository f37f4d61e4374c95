"""Changelogs that follow one another, on their way to become one while epochs go on.

A chain of very many small files makes barriers long and restores slow, and a snapshot would write a
large state because of few changes. The merged changelog is of an epoch that has its barrier
already. Those of later epochs name it, so no reader takes it for what one of them changed. A
restore applies it like any other.

To merge is not to read the backend, which has gone on: the files are read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.checkpointing.restore_plan import Handles
from spark_state.host.epoch_attempt import EpochAttempt
from spark_state.host.pending_snapshot import Written
from spark_state.keyed_state.merged_changes import merged_changes
from spark_state.keyed_state.state_rows import rows_by_key_group
from spark_state.state_descriptor import StateKind


@dataclass(frozen=True, slots=True)
class ChangelogMerge:
    """The Writing of what `changelogs` of a subtask with these `key_groups` come to. `attempt`
    reads and writes the files; `kinds`: those of the states."""

    key_groups: KeyGroupRange
    changelogs: Handles
    attempt: EpochAttempt
    kinds: Mapping[str, StateKind]

    def __str__(self) -> str:
        return "merging changelogs"

    def write(self) -> list[Written]:
        """See Writing. All rows are in memory at once."""
        read = self.attempt.checkpoints.files.read_each(self.changelogs, self.key_groups)
        changelogs = [
            pa.Table.from_batches(of_file) for _, batches in read if (of_file := [*batches])
        ]
        if not changelogs:
            return [Written(self.key_groups, (), {})]
        key_names = self.attempt.spec.processor.key_columns.names
        rows = merged_changes(key_names, self.kinds, changelogs)
        file = self.attempt.write_changelog(rows, self.key_groups)
        counts = rows_by_key_group(rows, self.key_groups)
        return [Written(self.key_groups, (file,), {file.name: counts})]

    def release(self) -> None:
        """Nothing is held."""
