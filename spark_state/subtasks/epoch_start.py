"""The start of an epoch: the completed checkpoint that a subtask's state begins from."""

from __future__ import annotations

from dataclasses import dataclass, replace

from checkpoint_store.epochs.checkpoint_share import AskedKeyGroups, CheckpointShare
from checkpoint_store.epochs.completed_checkpoint import StateSchema, SubtaskTime
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from spark_state.checkpointing.restore_plan import Handles


@dataclass(frozen=True, slots=True)
class EpochStart:
    """The start of an epoch for one subtask.

    `store`: holds the files; `checkpoint`: the epoch's base, None for an empty state;
    `is_taken_over`: True if store and checkpoint belong to another operator; `handles`: files of
    the subtask's state; `states`: schemas of the base's states; `times`: times in the barriers of
    all subtasks of the base, see watermarks; `barriers`: ids of the base's barriers that have key
    groups of this subtask (I4).
    """

    store: CompletedCheckpointStore
    checkpoint: CheckpointShare | None = None
    is_taken_over: bool = False
    handles: Handles = ()
    states: tuple[StateSchema, ...] = ()
    times: tuple[SubtaskTime, ...] = ()
    barriers: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, store: CompletedCheckpointStore, checkpoint: CheckpointShare, asked: AskedKeyGroups
    ) -> EpochStart:
        """Return the start from a checkpoint in `store`. `asked`: the subtask's key groups."""
        barriers = checkpoint.barriers_for(asked.key_groups, asked.max_parallelism)
        return cls(
            store=store,
            checkpoint=checkpoint,
            handles=checkpoint.handles_for(asked.key_groups),
            states=tuple(state for barrier in barriers for state in barrier.states),
            times=checkpoint.times(),
            barriers=tuple(barrier.barrier_id for barrier in barriers),
        )

    def taken_over(self) -> EpochStart:
        """Return this start as a start from another operator's state, without times and barriers.
        The other operator's times do not apply to this query, and the other barriers belong to
        another lineage."""
        return replace(self, is_taken_over=True, times=(), barriers=())

    @property
    def lineage(self) -> CheckpointShare | None:
        """The checkpoint that the epoch's barrier names as its base (I4)."""
        return None if self.is_taken_over else self.checkpoint
