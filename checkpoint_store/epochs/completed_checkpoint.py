"""Runs, barriers and completed checkpoints: the input of a restore.

A barrier lists the files of one subtask's whole state, oldest first. Applied in this order, the
files give the state after the barrier's epoch. The barriers of all subtasks of an epoch form a
completed checkpoint.

A restore at another parallelism narrows each handle to the key groups of the new subtask. The new
barriers hold the narrowed handles. So several barriers may name the same file, each with other key
groups, and only the rows of the handle's key groups are used.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from checkpoint_store.epochs.epoch_report import EpochReport
from checkpoint_store.epochs.subtask_groups import SubtaskGroup
from checkpoint_store.files.key_group_range import KeyGroupRange, key_group_range_of_subtask
from checkpoint_store.files.state_handle import StateHandle


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """One start of a query. A later run has a greater number; the id breaks a tie."""

    number: int
    run_id: str


@dataclass(frozen=True, slots=True)
class StateSchema:
    """The name, kind and schema of one registered state.

    `ttl_ms`: lifetime of a value in milliseconds, None if values do not expire. `since`: the epoch
    in which the state began. Files of earlier epochs may hold rows of a deleted state of the same
    name.
    """

    name: str
    kind: str
    schema_json: str
    ttl_ms: int | None = None
    since: int = 0


@dataclass(frozen=True, slots=True)
class SubtaskTime:
    """The progress of time at a subtask, in milliseconds since 1970.

    `batch_ms`: the time at which the newest batch known to the subtask was planned, None if the
    subtask knows no such time. `watermark_ms`: the watermark used by the epoch. `reached_ms`: for
    each watermark set by the query upstream of the operator, the position reached with the rows of
    this epoch and of all earlier epochs (None: no rows yet). `next_timer_ms`: the earliest timer
    after the epoch, None if there is no timer.
    """

    watermark_ms: int
    reached_ms: tuple[int | None, ...]
    next_timer_ms: int | None
    batch_ms: int | None


@dataclass(frozen=True, slots=True)
class OperatorStateHandle:
    """A reference to the operator state of a subtask: a single object, written whole.

    `name` is relative to the store. `length` and `checksum` (sha256, hex) cover the whole object.
    `epoch`: the epoch that wrote the object. `broadcast`: for each non-empty broadcast state, the
    name and the checksum of the content. The content is the same on all subtasks.
    """

    name: str
    length: int
    checksum: str
    epoch: int
    broadcast: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Barrier:
    """A subtask's statement that its part of `epoch` is durable.

    `plan_id`: the id of one call of transform_with_state. `base`: ids of the subtask's base
    barriers (I4), empty at the first epoch. `base_epoch`, `base_run`: epoch and run number of the
    base barriers. `handles`: all files needed to restore the subtask's key groups, oldest first.
    `report`: the work of the epoch. `time`: None if the operator knows no time. `operator_state`:
    None if the subtask has no operator state. `deleted_states`: states declared and then deleted by
    `init`; the store keeps no rows of a deleted state. `restored`: True if the barrier was written
    from a savepoint, so the query must go on with `epoch` + 1.
    """

    barrier_id: str
    epoch: int
    subtask: int
    parallelism: int
    run: Run
    attempt: int
    plan_id: str
    base: tuple[str, ...]
    base_epoch: int | None
    base_run: int | None
    handles: tuple[StateHandle, ...]
    states: tuple[StateSchema, ...]
    report: EpochReport
    time: SubtaskTime | None = None
    operator_state: OperatorStateHandle | None = None
    deleted_states: tuple[StateSchema, ...] = ()
    restored: bool = False

    def object_names(self) -> frozenset[str]:
        """The names of the objects that a restore may need."""
        names = frozenset(name for handle in self.handles for name in handle.lengths())
        return names if self.operator_state is None else names | {self.operator_state.name}


@dataclass(frozen=True, slots=True)
class GroupedCheckpoint:
    """A completed checkpoint whose barriers lie in separate objects, one object per group of
    subtasks. `groups`: for each group, in order, its subtasks and the name of its object."""

    epoch: int
    run: Run
    parallelism: int
    groups: tuple[tuple[SubtaskGroup, str], ...]


@dataclass(frozen=True, slots=True)
class CompletedBarriers:
    """Barriers of a completed checkpoint, ordered by subtask."""

    epoch: int
    run: Run
    parallelism: int
    barriers: tuple[Barrier, ...]

    def handles_for(self, key_groups: KeyGroupRange) -> tuple[StateHandle, ...]:
        """The handles to apply, in order, for the state of `key_groups`. The handles are narrowed
        to these key groups, without duplicates."""
        narrowed = (
            replace(handle, key_groups=common)
            for barrier in self.barriers
            for handle in barrier.handles
            if (common := handle.key_groups.intersection(key_groups))
        )
        return tuple(dict.fromkeys(narrowed))

    def barriers_for(self, key_groups: KeyGroupRange, max_parallelism: int) -> tuple[Barrier, ...]:
        """The barriers of the subtasks that owned a key group of `key_groups`."""
        return tuple(
            barrier
            for barrier in self.barriers
            if key_group_range_of_subtask(
                max_parallelism, self.parallelism, barrier.subtask
            ).intersection(key_groups)
        )


@dataclass(frozen=True, slots=True)
class CompletedCheckpoint(CompletedBarriers):
    """The aligned barriers of all subtasks of one epoch. `group_objects`: names of the group
    objects that hold the barriers, empty if the manifest holds the barriers."""

    group_objects: tuple[str, ...] = field(default=(), compare=False)

    def batch_ms(self) -> int | None:
        """The time at which the epoch's batch was planned, in ms since 1970. State expired by this
        time no longer exists. None if the operator knows no time."""
        times = [barrier.time.batch_ms for barrier in self.barriers if barrier.time is not None]
        return max((time_ms for time_ms in times if time_ms is not None), default=None)

    def object_names(self) -> frozenset[str]:
        """The names of the objects that a restore may need."""
        of_barriers = (barrier.object_names() for barrier in self.barriers)
        return frozenset(self.group_objects).union(*of_barriers)
