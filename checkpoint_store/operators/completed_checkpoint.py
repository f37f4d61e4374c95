"""Runs, barriers and completed checkpoints: what a restore is given.

A barrier lists the files of one subtask's whole state, oldest first; applied in this order they
give the state after the barrier's epoch. The barriers of all subtasks of an epoch are a completed
checkpoint. It can be cut to any range of key groups, which is how parallelism changes: each handle
is narrowed to the range, so that a file shared by several old subtasks is applied for exactly the
key groups of the barrier that names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from checkpoint_store.files.key_group_range import KeyGroupRange, key_group_range_of_subtask
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.operators.epoch_report import EpochReport
from checkpoint_store.operators.subtask_groups import SubtaskGroup


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """One start of a query. A later run has a greater number; the id breaks a tie."""

    number: int
    run_id: str


@dataclass(frozen=True, slots=True)
class StateSchema:
    """The name, kind and schema of one registered state.

    `ttl_ms`: how long its values live, None if they do not expire. `since`: the epoch that it
    began with. What files of earlier epochs have under its name was deleted.
    """

    name: str
    kind: str
    schema_json: str
    ttl_ms: int | None = None
    since: int = 0


@dataclass(frozen=True, slots=True)
class SubtaskTime:
    """How far time is at a subtask, in milliseconds since 1970.

    `batch_ms`: when the newest batch was planned that it knows of, None if it knows of none.
    `watermark_ms`: the watermark that the epoch used; `reached_ms`: for each watermark that the
    query sets above the operator, how far it has come with the rows of this epoch and of all before
    (None: no rows yet); `next_timer_ms`: the earliest timer after the epoch, None if there is none.
    """

    watermark_ms: int
    reached_ms: tuple[int | None, ...]
    next_timer_ms: int | None
    batch_ms: int | None = None


@dataclass(frozen=True, slots=True)
class OperatorStateHandle:
    """A reference to the operator state of a subtask: one object, written whole.

    `name` is relative to the store; `length` and `checksum` (sha256, hex) are of the whole object;
    `epoch`: the one that wrote it. `broadcast`: for each broadcast state that is not empty its name
    and the checksum of its content, which is the same on all subtasks.
    """

    name: str
    length: int
    checksum: str
    epoch: int
    broadcast: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Barrier:
    """A subtask's statement that its part of `epoch` is durable.

    `base`: ids of the barriers it started from (I4), none at the first epoch; `base_epoch`: their
    epoch; `base_run`: the number of their run. `handles`: everything needed to restore the
    subtask's key groups, oldest first. `report`: what the epoch did; None if an early build wrote
    the barrier. `time`: None if the operator knows no time. `operator_state`: None if the subtask
    has none. `deleted_states`: those that `init` declares and then deletes, so nothing is stored of
    them. `restored`: whether it was written from a savepoint, so that the epoch after it must be
    the next one.
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
    handles: tuple[StateHandle, ...]
    states: tuple[StateSchema, ...]
    base_run: int | None = None
    report: EpochReport | None = None
    time: SubtaskTime | None = None
    operator_state: OperatorStateHandle | None = None
    deleted_states: tuple[StateSchema, ...] = ()
    restored: bool = False

    def object_names(self) -> frozenset[str]:
        """The objects that a restore may need."""
        names = frozenset(name for handle in self.handles for name in handle.lengths())
        return names if self.operator_state is None else names | {self.operator_state.name}


@dataclass(frozen=True, slots=True)
class GroupedCheckpoint:
    """A completed checkpoint whose barriers are in objects of their own, each with those of a group
    of subtasks. `groups`: for each one, in order, its subtasks and the name of its object."""

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
        """What to apply, in this order, for the state of `key_groups`: narrowed, no duplicates."""
        return tuple(dict.fromkeys(self._narrowed(key_groups)))

    def _narrowed(self, key_groups: KeyGroupRange) -> Iterator[StateHandle]:
        for barrier in self.barriers:
            for handle in barrier.handles:
                common = handle.key_groups.intersection(key_groups)
                if common is not None:
                    yield replace(handle, key_groups=common)

    def barriers_for(self, key_groups: KeyGroupRange, max_parallelism: int) -> tuple[Barrier, ...]:
        """The barriers of the subtasks that owned any of `key_groups`."""
        return tuple(
            barrier
            for barrier in self.barriers
            if key_group_range_of_subtask(
                max_parallelism, self.parallelism, barrier.subtask
            ).intersection(key_groups)
        )


@dataclass(frozen=True, slots=True)
class CompletedCheckpoint(CompletedBarriers):
    """The aligned barriers of all subtasks of one epoch. `group_objects`: the objects that hold
    them, if these are of groups."""

    group_objects: tuple[str, ...] = field(default=(), compare=False)

    def batch_ms(self) -> int | None:
        """When the epoch's batch was planned, in ms since 1970: what has expired by then is not
        there any more. None if the operator knows no time."""
        times = [barrier.time.batch_ms for barrier in self.barriers if barrier.time is not None]
        return max((time_ms for time_ms in times if time_ms is not None), default=None)

    def object_names(self) -> frozenset[str]:
        """The objects that a restore may need."""
        of_barriers = (barrier.object_names() for barrier in self.barriers)
        return frozenset(self.group_objects).union(*of_barriers)
