"""The part of a completed checkpoint that a subtask needs. Pure.

The barriers of the subtasks that had any of its key groups, and the summary of all. With many
subtasks these are in a few objects, and the others are not read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from checkpoint_store.files.key_group_range import KeyGroupRange, key_group_range_of_subtask
from checkpoint_store.operators.checkpoint_summary import CheckpointSummary, summary_of
from checkpoint_store.operators.completed_checkpoint import (
    Barrier,
    CompletedBarriers,
    CompletedCheckpoint,
    SubtaskTime,
)
from checkpoint_store.operators.subtask_groups import SubtaskGroup


@dataclass(frozen=True, slots=True)
class CheckpointShare(CompletedBarriers):
    """`barriers`: at least those of the key groups that were asked for; `summary`: of all barriers;
    `whole`: the checkpoint, if it was read as a whole."""

    summary: CheckpointSummary
    whole: CompletedCheckpoint | None = field(default=None, compare=False)

    def times(self) -> tuple[SubtaskTime, ...]:
        """The times of all subtasks, summed up as one; none if the operator knows no time."""
        return () if self.summary.time is None else (self.summary.time,)

    def barrier_of(self, subtask: int) -> Barrier:
        """The barrier of a subtask of this checkpoint's parallelism that was asked for."""
        return next(barrier for barrier in self.barriers if barrier.subtask == subtask)


@dataclass(frozen=True, slots=True)
class AskedKeyGroups:
    """The key groups of which a share is asked for, of all `max_parallelism` ones."""

    key_groups: KeyGroupRange
    max_parallelism: int

    @classmethod
    def of_subtask(cls, max_parallelism: int, parallelism: int, subtask: int) -> AskedKeyGroups:
        """Those that a subtask owns."""
        own = key_group_range_of_subtask(max_parallelism, parallelism, subtask)
        return cls(own, max_parallelism)

    def are_in(self, group: SubtaskGroup, parallelism: int) -> bool:
        """Whether a subtask of the group had any of them."""
        first = key_group_range_of_subtask(self.max_parallelism, parallelism, group.first)
        last = key_group_range_of_subtask(self.max_parallelism, parallelism, group.last)
        return KeyGroupRange(first.start, last.end).intersection(self.key_groups) is not None


def share_of_all(whole: CompletedCheckpoint) -> CheckpointShare:
    """A share that is the whole checkpoint."""
    return CheckpointShare(
        whole.epoch,
        whole.run,
        whole.parallelism,
        whole.barriers,
        # Whether a barrier was replaced is known to who completed it: here it may have been.
        summary_of(whole.barriers, is_contested=True),
        whole,
    )


def share_of_own(barrier: Barrier, summary: CheckpointSummary) -> CheckpointShare:
    """The share of the subtask that published this barrier, which counts."""
    return CheckpointShare(barrier.epoch, barrier.run, barrier.parallelism, (barrier,), summary)
