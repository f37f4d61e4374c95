"""The completed checkpoints of one operator: written, found again, deleted.

A subtask writes its state files, then publishes its barrier (I3). If the subtask afterwards finds
the barriers of all subtasks (the epoch is aligned), the subtask writes the manifest. Every object
has a unique name (I1). So writers never wait for each other, and two writers may write the same
manifest.

Only the live timeline counts, see run_lineage. No epoch is ever built upon the late objects of a
zombie of an older run, nor upon epochs of a timeline abandoned by a rollback (I4).

An aligned epoch without a manifest counts: the last writer is still writing the manifest, or died
after publishing the barrier. An aligned epoch with a damaged manifest also counts: the checkpoint
is rebuilt from the barriers if the barriers are intact; otherwise the error names the damaged
object. A damaged manifest never makes an operator go back to an older epoch.
"""

from __future__ import annotations

from checkpoint_store import object_names
from checkpoint_store.epochs.checkpoint_codec import (
    decode_metadata,
    encode_barrier,
    encode_metadata,
)
from checkpoint_store.epochs.checkpoint_completion import CheckpointCompletion
from checkpoint_store.epochs.completed_checkpoint import (
    Barrier,
    CompletedCheckpoint,
    Run,
)
from checkpoint_store.epochs.operator_layout import BarrierName, EpochDirectory
from checkpoint_store.epochs.published_objects import PublishedObjects
from checkpoint_store.epochs.store_metadata import StoreMetadata
from checkpoint_store.epochs.subtask_groups import HUNDREDS, SubtaskGroups
from checkpoint_store.files.document import Source
from checkpoint_store.files.key_group_range import key_group_range_of_subtask
from checkpoint_store.objects.deletion import sweep_orphans
from checkpoint_store.objects.named_object import read_or_create, unique_of_uuid
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.operators.checkpoint_orphans import CheckpointOrphans
from checkpoint_store.operators.checkpoint_retention import CheckpointRetention
from checkpoint_store.operators.epoch_files import EpochFiles
from checkpoint_store.runs.epoch_bases import EpochBases
from checkpoint_store.runs.run_registry import RunRegistry
from checkpoint_store.runs.run_starts import RunStarts


class CompletedCheckpointStore:
    """The checkpoints in `store`. Call `open` first. Safe to use from several threads and
    processes.

    `files`: the files that epochs name; `runs`: the numbers of runs; `starts`: the starts of runs;
    `completion`: the completion of epochs; `bases`: the checkpoints that epochs start from.
    `groups`: the sizes of groups of subtasks.
    """

    def __init__(self, store: ObjectStore, groups: SubtaskGroups = HUNDREDS) -> None:
        self._store = store
        self.files = EpochFiles(store)
        self._published = PublishedObjects(store)
        self.starts = RunStarts(store)
        self._retention = CheckpointRetention(store, self._published, self.starts)
        self.completion = CheckpointCompletion(store, self._published, groups)
        self.bases = EpochBases(store, self._published, self.starts, self.completion)
        self.runs = RunRegistry(store, self._greatest_run_number)
        self._metadata: StoreMetadata | None = None

    def open(self, metadata: StoreMetadata) -> StoreMetadata:
        """Check that the store belongs to `metadata`; create the store if there is none.

        Raises StoreMismatchError with the field and both values; CorruptObjectError;
        UnsupportedFormatError.
        """
        data = read_or_create(self._store, object_names.STORE, encode_metadata(metadata))
        stored = decode_metadata(data, Source(self._store.url, object_names.STORE))
        stored.check_same(metadata, self._store.url)
        self._metadata = stored
        self.files.open(stored.store_id)
        return stored

    def check(self, metadata: StoreMetadata) -> None:
        """Raise StoreMismatchError unless the store was opened for this metadata. Reads nothing."""
        assert self._metadata is not None, "open the store first"
        self._metadata.check_same(metadata, self._store.url)

    def _greatest_run_number(self) -> int:
        """The greatest number of a run that has written epochs, 0 if there is none. The run's
        objects in `runs/` may be gone. A new run needs a greater number all the same, so that the
        new run's epochs take precedence."""
        completed = (name.run_number for name in self._published.manifests())
        begun = (directory.run_number for directory in self._published.epoch_directories())
        return max((*completed, *begun), default=0)

    def publish_barrier(self, barrier: Barrier) -> None:
        """Publish a barrier; durable on return. The barrier's files must be durable before the call
        (I3)."""
        assert self._metadata is not None, "open the store first"
        own = key_group_range_of_subtask(
            self._metadata.max_parallelism, barrier.parallelism, barrier.subtask
        )
        for handle in barrier.handles:
            assert handle.key_groups.intersection(own) == handle.key_groups, (handle, own)
        name = BarrierName(
            directory=EpochDirectory(barrier.epoch, barrier.run.number),
            subtask=barrier.subtask,
            parallelism=barrier.parallelism,
            attempt=barrier.attempt,
            unique=unique_of_uuid(),
        )
        self.starts.begin(barrier)
        self._store.put(str(name), encode_barrier(barrier))
        self._published.remember_barrier(name, barrier)

    def complete(self, epoch: int, run: Run, parallelism: int, subtask: int | None = None) -> bool:
        """Write the manifest of `epoch` if every subtask has published its barrier; return True if
        so. Call `complete` after each barrier, with the barrier's subtask: the publisher of the
        last barrier sees all barriers. See checkpoint_completion."""
        return self.completion.complete(epoch, run, parallelism, subtask)

    def latest_before(self, epoch: int, run: Run | None = None) -> CompletedCheckpoint | None:
        """The checkpoint that `epoch` starts from; None if there was no epoch before. Writes
        nothing.

        Costs and raises the same as EpochBases.before.
        """
        share = self.bases.before(epoch, run, None)
        return None if share is None else share.whole

    def retain(self, min_epochs: int) -> int:
        """Retain the newest `min_epochs` epochs (at least 2). Delete the objects that only expired
        epochs needed, and return their number (I8). See checkpoint_retention."""
        return self._retention.retain(min_epochs)

    def sweep_orphans(self, grace_seconds: float, now: float) -> list[str]:
        """Delete the objects that no epoch needs, and return their names. See
        checkpoint_orphans."""
        orphans = CheckpointOrphans(self._store)
        return sweep_orphans(self._store, orphans, grace_seconds, now)
