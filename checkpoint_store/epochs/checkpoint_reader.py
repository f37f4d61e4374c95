"""Reads the checkpoint of a run at an epoch: from an intact manifest, else from barriers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from checkpoint_store.epochs.barrier_alignment import align_last_writer
from checkpoint_store.epochs.checkpoint_share import (
    AskedKeyGroups,
    CheckpointShare,
    share_of_all,
)
from checkpoint_store.epochs.completed_checkpoint import CompletedCheckpoint, Run
from checkpoint_store.epochs.operator_layout import EpochDirectory, ManifestName
from checkpoint_store.epochs.published_objects import PublishedObjects
from checkpoint_store.errors import PartialEpochError
from checkpoint_store.objects.object_store import ObjectStore


class CheckpointReader:
    """The reader of the checkpoints in `store`. `asked`, in each method: the key groups that the
    caller needs; None to read the whole checkpoint."""

    def __init__(self, store: ObjectStore, published: PublishedObjects) -> None:
        self._store = store
        self._published = published

    def latest(
        self, names: Sequence[ManifestName], asked: AskedKeyGroups | None
    ) -> CheckpointShare | None:
        """Read the share of an intact manifest among `names`, all of one epoch and run. None if no
        manifest is intact."""
        read = partial(self._published.read_share, asked=asked)
        return self._published.latest_read(names, read)[0]

    def share_of(
        self,
        key: EpochDirectory,
        manifests: Sequence[ManifestName],
        asked: AskedKeyGroups | None,
        run: Run | None = None,
    ) -> CheckpointShare | None:
        """The share, for the key groups `asked`, of the checkpoint that one run completed at one
        epoch; None if the run published nothing at the epoch.

        `manifests`: at least the manifests of the epoch and run. `run`: if given, only objects of
        this run count. Another run may have the same number after the store was restored from a
        backup. Writes nothing. Raises PartialEpochError (I5) and CorruptObjectError.
        """
        share = self.latest([name for name in manifests if name.directory == key], asked)
        if share is not None and run in (None, share.run):
            return share
        whole = self.whole_of(key, manifests, run)
        return None if whole is None else share_of_all(whole)

    def whole_of(
        self,
        key: EpochDirectory,
        manifests: Sequence[ManifestName],
        run: Run | None = None,
    ) -> CompletedCheckpoint | None:
        """The whole checkpoint that one run completed at one epoch, None if the run published
        nothing at the epoch. Raises the errors of `share_of`."""
        names = [name for name in manifests if name.directory == key]
        whole, damage = self._published.latest_read(names, self._published.read_manifest)
        if whole is not None and run in (None, whole.run):
            return whole
        barriers = self._published.read_barriers(self._published.barriers(key))
        alignment = align_last_writer([b for b in barriers if run in (None, b.run)])
        completed = None if alignment is None else alignment.completed()
        if completed is None and damage is not None:
            raise damage
        if completed is None and alignment is not None:
            raise PartialEpochError(
                self._store.url, alignment.epoch, alignment.present(), alignment.missing()
            )
        return completed
