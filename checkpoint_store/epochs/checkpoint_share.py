"""A subtask's part of a completed checkpoint. Pure.

A share holds the barriers of all former owners of the subtask's key groups, and the summary of all
barriers. With many subtasks, the checkpoint's barriers are in many group objects. Only the group
objects with barriers of these owners are read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from checkpoint_store.epochs.checkpoint_summary import CheckpointSummary, summary_of
from checkpoint_store.epochs.completed_checkpoint import (
    Barrier,
    CompletedBarriers,
    CompletedCheckpoint,
    SubtaskTime,
)
from checkpoint_store.epochs.subtask_groups import SubtaskGroup
from checkpoint_store.files.key_group_range import KeyGroupRange, key_group_range_of_subtask


@dataclass(frozen=True, slots=True)
class CheckpointShare(CompletedBarriers):
    """A part of a completed checkpoint. `barriers`: at least the barriers of the requested key
    groups; `summary`: the summary of all barriers; `whole`: the checkpoint, if the whole checkpoint
    was read."""

    summary: CheckpointSummary
    whole: CompletedCheckpoint | None = field(default=None, compare=False)

    def times(self) -> tuple[SubtaskTime, ...]:
        """The joint time of all subtasks, as a tuple of one element; empty if the operator knows no
        time."""
        return () if self.summary.time is None else (self.summary.time,)

    def barrier_of(self, subtask: int) -> Barrier:
        """The barrier of a subtask, by its number at the checkpoint's parallelism. The subtask must
        own some of the requested key groups."""
        return next(barrier for barrier in self.barriers if barrier.subtask == subtask)


@dataclass(frozen=True, slots=True)
class AskedKeyGroups:
    """The key groups that a share is requested for, out of `max_parallelism` key groups."""

    key_groups: KeyGroupRange
    max_parallelism: int

    @classmethod
    def of_subtask(cls, max_parallelism: int, parallelism: int, subtask: int) -> AskedKeyGroups:
        """The key groups that a subtask owns."""
        own = key_group_range_of_subtask(max_parallelism, parallelism, subtask)
        return cls(own, max_parallelism)

    def are_in(self, group: SubtaskGroup, parallelism: int) -> bool:
        """True if a subtask of the group had any of these key groups."""
        first = key_group_range_of_subtask(self.max_parallelism, parallelism, group.first)
        last = key_group_range_of_subtask(self.max_parallelism, parallelism, group.last)
        return KeyGroupRange(first.start, last.end).intersection(self.key_groups) is not None


def share_of_all(whole: CompletedCheckpoint) -> CheckpointShare:
    """The share that holds the whole checkpoint."""
    return CheckpointShare(
        whole.epoch,
        whole.run,
        whole.parallelism,
        whole.barriers,
        # Only the host that completed the epoch knows if a barrier was replaced: assume so.
        summary_of(whole.barriers, is_contested=True),
        whole,
    )


def share_of_own(barrier: Barrier, summary: CheckpointSummary) -> CheckpointShare:
    """The share of the subtask that published `barrier`. The caller knows that the barrier
    counts."""
    return CheckpointShare(barrier.epoch, barrier.run, barrier.parallelism, (barrier,), summary)
