"""A small operator on a CompletedCheckpointStore: one integer of state per key group.

The operator takes the engine's steps on checkpoints (base, files, barrier, manifest) one by one.
Tests can stop between any two steps and compare the restored state with a dict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from checkpoint_store.epochs.completed_checkpoint import (
    Barrier,
    CompletedCheckpoint,
    Run,
    StateSchema,
)
from checkpoint_store.epochs.epoch_report import EpochReport
from checkpoint_store.epochs.published_objects import PublishedObjects
from checkpoint_store.epochs.store_metadata import StoreMetadata
from checkpoint_store.epochs.subtask_attempt import SubtaskAttempt
from checkpoint_store.files.key_group_range import KeyGroupRange, key_group_range_of_subtask
from checkpoint_store.files.state_handle import StateFileKind
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.operators.completed_checkpoint_store import (
    CompletedCheckpointStore,
)
from tests.support.operators.epoch_reports import NOTHING_DONE
from tests.support.stores.fake_object_store import DictObjectStore

MAX_PARALLELISM = 8
NO_COLUMNS = '{"type":"struct","fields":[]}'
METADATA = StoreMetadata("store-1", "counts", MAX_PARALLELISM, NO_COLUMNS)
SCHEMA = pa.schema([("_key_group", pa.int32()), ("key", pa.int64()), ("value", pa.int64())])

State = Mapping[int, int]


def state_table(state: State) -> pa.Table:
    """Rows as the engine writes rows: sorted by key group and key."""
    rows = [{"_key_group": g, "key": g, "value": state[g]} for g in sorted(state)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


class CountsOperator:
    """One run of the operator. `checkpoints` is open. `report`: the epoch report in each subtask's
    barrier."""

    metadata = METADATA
    states = (StateSchema("count", "value", NO_COLUMNS),)

    def __init__(
        self,
        store: ObjectStore,
        run_id: str = "run-a",
        parallelism: int = 2,
    ) -> None:
        self.checkpoints = CompletedCheckpointStore(store)
        self.checkpoints.open(self.metadata)
        self.run: Run = self.checkpoints.runs.register(run_id)
        self.parallelism = parallelism
        self.report: EpochReport = NOTHING_DONE

    def run_epoch(
        self, epoch: int, changes: State, kind: StateFileKind = "changelog", attempt: int = 1
    ) -> CompletedCheckpoint | None:
        """Run all subtasks of `epoch` from the newest checkpoint before `epoch`, and complete
        `epoch`."""
        base = self.checkpoints.latest_before(epoch)
        for subtask in range(self.parallelism):
            self.run_subtask(epoch, subtask, changes, base, kind=kind, attempt=attempt)
        completed = self.checkpoints.complete(epoch, self.run, self.parallelism)
        return self.checkpoints.latest_before(epoch + 1, self.run) if completed else None

    def run_subtask(
        self,
        epoch: int,
        subtask: int,
        changes: State,
        base: CompletedCheckpoint | None,
        *,
        kind: StateFileKind = "changelog",
        attempt: int = 1,
    ) -> Barrier:
        """Write the subtask's file and publish the barrier. With `kind` snapshot the file has the
        whole state."""
        own = key_group_range_of_subtask(MAX_PARALLELISM, self.parallelism, subtask)
        mine = {group: value for group, value in changes.items() if group in own}
        handles = () if base is None else base.handles_for(own)
        if kind == "snapshot" and base is not None:
            mine = {**restored(self.checkpoints, base, [own]), **mine}
            handles = ()
        if mine:
            by = SubtaskAttempt(self.run, epoch, subtask, attempt)
            files = self.checkpoints.files.written_by(by)
            handles = (*handles, files.write(kind, self.table(mine), own))
        bases = () if base is None else base.barriers_for(own, MAX_PARALLELISM)
        barrier = Barrier(
            barrier_id=f"{self.run.run_id}/{epoch}/{subtask}/{attempt}",
            epoch=epoch,
            subtask=subtask,
            parallelism=self.parallelism,
            run=self.run,
            attempt=attempt,
            plan_id="plan-1",
            base=tuple(barrier.barrier_id for barrier in bases),
            base_epoch=None if base is None else base.epoch,
            base_run=None if base is None else base.run.number,
            handles=handles,
            states=self.states,
            report=self.report,
        )
        self.checkpoints.publish_barrier(barrier)
        return barrier

    def table(self, state: State) -> pa.Table:
        """The rows of a file."""
        return state_table(state)


def whole_range(parallelism: int) -> list[KeyGroupRange]:
    """The key group ranges of all subtasks."""
    return [
        key_group_range_of_subtask(MAX_PARALLELISM, parallelism, subtask)
        for subtask in range(parallelism)
    ]


def restored(
    checkpoints: CompletedCheckpointStore,
    checkpoint: CompletedCheckpoint | None,
    ranges: Iterable[KeyGroupRange],
) -> dict[int, int]:
    """The state that subtasks of these ranges restore. Each subtask applies its files in order."""
    state: dict[int, int] = {}
    if checkpoint is None:
        return state
    for key_groups in ranges:
        for handle in checkpoint.handles_for(key_groups):
            for batch in checkpoints.files.states.read(handle, key_groups):
                for row in batch.to_pylist():
                    assert row["_key_group"] in key_groups
                    # A KeyedOperator has the value in the column of its state.
                    value = row["value"] if "value" in row else row["count"]["n"]
                    state[row["_key_group"]] = value
    return state


def state_before(store: ObjectStore, epoch: int, parallelism: int = 1) -> dict[int, int]:
    """The state that a new process restores for `epoch`."""
    checkpoints = CompletedCheckpointStore(store)
    checkpoints.open(METADATA)
    return restored(checkpoints, checkpoints.latest_before(epoch), whole_range(parallelism))


def check_nothing_named_is_missing(objects: DictObjectStore) -> None:
    """Assert that every object named by a manifest exists (I8)."""
    published = PublishedObjects(objects)
    for name in published.manifests():
        assert published.read_manifest(name).object_names() <= objects.objects.keys()
