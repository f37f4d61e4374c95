"""Merges successive changelogs into a single changelog, in the background.

Very many small files make barriers long and restores slow, and a snapshot of a large state would
write much because of few changes. A merge is written after the barrier of its newest epoch. Only
barriers of later epochs name the merged changelog, so a reader never mistakes the merged changelog
for the changes of a single epoch. A restore applies a merged changelog like any other changelog.

A merge reads the changelogs from the store again, because the backend no longer has the changes of
earlier epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.checkpointing.restore_plan import Handles
from spark_state.keyed_state.merged_changes import merged_changes
from spark_state.keyed_state.state_rows import rows_by_key_group
from spark_state.state_descriptor import StateKind
from spark_state.subtasks.epoch_attempt import EpochAttempt
from spark_state.subtasks.pending_snapshot import Written


@dataclass(frozen=True, slots=True)
class ChangelogMerge:
    """A job (see Writing) that merges the `changelogs` of a subtask. `key_groups`: the subtask's
    key groups. `attempt`: the attempt that begins the merge; the new file is a file of this
    attempt. `kinds`: the kind of each state, by name."""

    key_groups: KeyGroupRange
    changelogs: Handles
    attempt: EpochAttempt
    kinds: Mapping[str, StateKind]

    def __str__(self) -> str:
        return "merging changelogs"

    def write(self) -> list[Written]:
        """Merge and write, see Writing. All rows are in memory at once."""
        read = self.attempt.checkpoints.files.states.read_each(self.changelogs, self.key_groups)
        changelogs = [
            pa.Table.from_batches(of_file) for _, batches in read if (of_file := [*batches])
        ]
        if not changelogs:
            return [Written(self.key_groups, (), {})]
        key_names = self.attempt.spec.processor.key_columns.names
        rows = merged_changes(key_names, self.kinds, changelogs)
        file = self.attempt.files.write("changelog", rows, self.key_groups)
        counts = rows_by_key_group(rows, self.key_groups)
        return [Written(self.key_groups, (file,), {file.name: counts})]

    def release(self) -> None:
        """Do nothing: a merge holds no state."""
