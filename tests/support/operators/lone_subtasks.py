"""Subtasks with a host each, which do the engine's steps on checkpoints.

The subtasks have no state in memory: a test or a benchmark gives the changes of an epoch, and reads
the store. `LoneSubtask` has each step of an epoch as a method, so that many subtasks can take the
steps in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from checkpoint_store.epochs.checkpoint_share import AskedKeyGroups, CheckpointShare
from checkpoint_store.epochs.completed_checkpoint import (
    Barrier,
    OperatorStateHandle,
    StateSchema,
    SubtaskTime,
)
from checkpoint_store.epochs.store_metadata import StoreMetadata
from checkpoint_store.epochs.subtask_attempt import SubtaskAttempt
from checkpoint_store.epochs.subtask_groups import HUNDREDS, SubtaskGroups
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.operators.completed_checkpoint_store import (
    CompletedCheckpointStore,
)
from tests.support.operators.counts_operator import NO_COLUMNS, State, state_table
from tests.support.operators.epoch_reports import NOTHING_DONE
from tests.support.operators.taken_back import CHECKPOINT

STATES = (StateSchema("count", "value", NO_COLUMNS),)


@dataclass(frozen=True)
class Operator:
    """An operator in one run, whose subtasks each have a host of their own."""

    run_id: str
    parallelism: int
    max_parallelism: int = 128
    groups: SubtaskGroups = HUNDREDS

    @property
    def metadata(self) -> StoreMetadata:
        return StoreMetadata("store-1", "counts", self.max_parallelism, NO_COLUMNS)

    def asked(self, subtask: int) -> AskedKeyGroups:
        """The key groups of a subtask."""
        return AskedKeyGroups.of_subtask(self.max_parallelism, self.parallelism, subtask)

    def opened(self, store: ObjectStore) -> CompletedCheckpointStore:
        """The operator's checkpoints, opened as by a new host."""
        checkpoints = CompletedCheckpointStore(store, groups=self.groups)
        checkpoints.open(self.metadata)
        return checkpoints


@dataclass
class LoneSubtask:
    """A subtask of a run. `own`: the last barrier that the subtask published."""

    store: ObjectStore
    operator: Operator
    subtask: int
    own: Barrier | None = None
    is_completed: bool = False
    checkpoints: CompletedCheckpointStore = field(init=False)

    def __post_init__(self) -> None:
        self.checkpoints = self.operator.opened(self.store)
        self.run = self.checkpoints.runs.register(self.operator.run_id)
        self.checkpoints.starts.note_checkpoint(self.run, CHECKPOINT)
        self.asked = self.operator.asked(self.subtask)

    def base(self, epoch: int) -> CheckpointShare | None:
        """The checkpoint share that the epoch starts from."""
        bases = self.checkpoints.bases
        if self.own is not None and self.own.epoch == epoch - 1:
            own = self.own if self.is_completed else None
            return bases.completed_at(
                epoch - 1, self.run, self.operator.parallelism, own, self.asked
            )
        return bases.before(epoch, self.run, self.asked)

    def publish(
        self,
        epoch: int,
        base: CheckpointShare | None,
        changes: State,
        *,
        attempt: int = 1,
        time: SubtaskTime | None = None,
        operator_state: OperatorStateHandle | None = None,
    ) -> Barrier:
        """Write the changes of the subtask's key groups, if there are any, and the barrier."""
        own = self.asked.key_groups
        mine = {group: value for group, value in changes.items() if group in own}
        handles = () if base is None else base.handles_for(own)
        if mine:
            by = SubtaskAttempt(self.run, epoch, self.subtask, attempt)
            files = self.checkpoints.files.written_by(by)
            handles = (*handles, files.write("changelog", state_table(mine), own))
        most = self.operator.max_parallelism
        barrier = Barrier(
            barrier_id=uuid4().hex,
            epoch=epoch,
            subtask=self.subtask,
            parallelism=self.operator.parallelism,
            run=self.run,
            attempt=attempt,
            plan_id="plan-1",
            base=tuple(b.barrier_id for b in base.barriers_for(own, most)) if base else (),
            base_epoch=None if base is None else base.epoch,
            base_run=None if base is None else base.run.number,
            handles=handles,
            states=STATES,
            report=NOTHING_DONE,
            time=time,
            operator_state=operator_state,
        )
        self.checkpoints.publish_barrier(barrier)
        self.own, self.is_completed = barrier, False
        return barrier

    def complete(self) -> bool:
        """Complete the epoch if this subtask's barrier was the last barrier of the epoch."""
        assert self.own is not None
        done = self.checkpoints.complete(
            self.own.epoch, self.run, self.operator.parallelism, self.subtask
        )
        self.is_completed = True
        return done

    def run_epoch(self, epoch: int, changes: State, attempt: int = 1) -> None:
        """Do all steps of an epoch."""
        self.publish(epoch, self.base(epoch), changes, attempt=attempt)
        self.complete()


def started(store: ObjectStore, operator: Operator) -> list[LoneSubtask]:
    """All subtasks of a run."""
    return [LoneSubtask(store, operator, subtask) for subtask in range(operator.parallelism)]


def run_epoch(subtasks: Sequence[LoneSubtask], epoch: int, changes: State) -> None:
    """Let the subtasks run an epoch, in the order of `subtasks`."""
    for subtask in subtasks:
        subtask.run_epoch(epoch, changes)


def state_before(store: ObjectStore, epoch: int, operator: Operator) -> dict[int, int]:
    """The state that an operator's subtasks, in new hosts, restore for an epoch. Each subtask's
    share is compared with the whole checkpoint."""
    checkpoints = operator.opened(store)
    run = checkpoints.runs.registered(operator.run_id)
    whole = checkpoints.latest_before(epoch, run)
    state: dict[int, int] = {}
    for subtask in range(operator.parallelism):
        asked = operator.asked(subtask)
        share = checkpoints.bases.before(epoch, run, asked)
        assert (share is None) == (whole is None)
        if share is None or whole is None:
            continue
        handles = share.handles_for(asked.key_groups)
        assert handles == whole.handles_for(asked.key_groups)
        most = asked.max_parallelism
        assert share.barriers_for(asked.key_groups, most) == whole.barriers_for(
            asked.key_groups, most
        )
        for handle in handles:
            for batch in checkpoints.files.states.read(handle, asked.key_groups):
                state |= {row["_key_group"]: row["value"] for row in batch.to_pylist()}
    return state
