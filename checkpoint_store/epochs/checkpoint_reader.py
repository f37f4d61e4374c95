"""Reads the checkpoint of a run at an epoch: from an intact manifest, else from barriers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from checkpoint_store.epochs.barrier_alignment import Alignment, align, align_last_writer
from checkpoint_store.epochs.checkpoint_completion import CheckpointCompletion
from checkpoint_store.epochs.checkpoint_share import (
    AskedKeyGroups,
    CheckpointShare,
    share_of_all,
)
from checkpoint_store.epochs.completed_checkpoint import CompletedCheckpoint, Run
from checkpoint_store.epochs.operator_layout import EpochDirectory, ManifestName
from checkpoint_store.epochs.published_objects import PublishedObjects
from checkpoint_store.errors import CorruptObjectError, PartialEpochError
from checkpoint_store.objects.object_store import ObjectStore


class CheckpointReader:
    """The reader of the checkpoints in `store`. `asked`, in each method: the key groups that the
    caller needs; None to read the whole checkpoint."""

    def __init__(
        self, store: ObjectStore, published: PublishedObjects, completion: CheckpointCompletion
    ) -> None:
        self._store = store
        self._published = published
        self._completion = completion

    def latest(
        self, names: Sequence[ManifestName], asked: AskedKeyGroups | None
    ) -> tuple[CheckpointShare | None, CorruptObjectError | None]:
        """Read an intact manifest among `names`, all of one epoch and run. Return two values: the
        share, None if no manifest is intact; and the error of a damaged manifest, None if no damage
        was found."""
        read = partial(self._published.read_share, asked=asked)
        return self._published.latest_read(names, read)

    def share_of(
        self,
        key: EpochDirectory,
        manifests: Sequence[ManifestName],
        asked: AskedKeyGroups | None,
    ) -> CheckpointShare | None:
        """The checkpoint that one run completed at one epoch, None if the run published nothing at
        the epoch.

        `manifests`: at least the manifests of the epoch and run. Writes nothing. Raises
        PartialEpochError (I5) and CorruptObjectError.
        """
        names = [name for name in manifests if name.directory == key]
        share, damage = self.latest(names, asked)
        if share is not None:
            return share
        assembled = None if asked is None else self._completion.assembled(key, asked)
        if assembled is not None:
            return assembled
        barriers = self._published.read_barriers(self._published.barriers(key))
        rebuilt = self.rebuilt(align_last_writer(barriers), damage, write=False)
        return None if rebuilt is None else share_of_all(rebuilt)

    def whole_of(
        self, key: EpochDirectory, manifests: Sequence[ManifestName]
    ) -> CompletedCheckpoint | None:
        """The whole checkpoint that one run completed at one epoch, None if the run published
        nothing at the epoch. Raises the errors of `share_of`."""
        share = self.share_of(key, manifests, None)
        return None if share is None else share.whole

    def alignment(self, epoch: int, run: Run, parallelism: int) -> Alignment | None:
        """The alignment of the published barriers, None if there are no barriers."""
        names = self._completion.barrier_names(EpochDirectory(epoch, run.number), parallelism)
        alignment = align(self._published.read_barriers(names), epoch, run, parallelism)
        return alignment if alignment.barriers else None

    def rebuilt(
        self, alignment: Alignment | None, damage: CorruptObjectError | None, *, write: bool
    ) -> CompletedCheckpoint | None:
        """The checkpoint of an epoch without an intact manifest. `write`: True writes a new
        manifest."""
        completed = None if alignment is None else alignment.completed()
        if completed is not None:
            if write:
                self._completion.write(completed)
            return completed
        if damage is not None:
            raise damage
        if alignment is not None:
            raise PartialEpochError(
                self._store.url, alignment.epoch, alignment.present(), alignment.missing()
            )
        return None
