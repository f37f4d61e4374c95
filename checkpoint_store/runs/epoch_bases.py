"""Finds the checkpoint that an epoch starts from, on the live timeline (I4). See run_lineage.

A subtask that has published its barrier of the preceding epoch goes on from its run's checkpoint of
that epoch (`completed_at`). A host that starts looks for the base (`before`). Many hosts may start
at once, so each host first tries a short way: list the starts of runs and the manifests of two
epochs. The short way is enough in two cases:

- the run goes on from its own epoch;
- the preceding epoch was written by the newest of the older runs and by no other run, all runs told
  the same location of their checkpoint, and the run's driver looked at the whole timeline when the
  query started.

In all other cases the host lists everything.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from checkpoint_store import object_names
from checkpoint_store.epochs import operator_layout as layout
from checkpoint_store.epochs.checkpoint_completion import CheckpointCompletion
from checkpoint_store.epochs.checkpoint_reader import CheckpointReader
from checkpoint_store.epochs.checkpoint_share import (
    AskedKeyGroups,
    CheckpointShare,
    share_of_all,
    share_of_own,
)
from checkpoint_store.epochs.checkpoint_summary import CheckpointSummary
from checkpoint_store.epochs.completed_checkpoint import Barrier, CompletedCheckpoint, Run
from checkpoint_store.epochs.operator_layout import (
    BegunName,
    EpochDirectory,
    ManifestName,
    agreed_summary,
)
from checkpoint_store.epochs.published_objects import PublishedObjects, latest_first
from checkpoint_store.errors import EpochNotRetainedError, ObjectMissingError
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.runs.checkpoint_location import has_one_location
from checkpoint_store.runs.rival_checkpoints import are_same, whole_rivals
from checkpoint_store.runs.run_errors import (
    ContradictingRunsError,
    OvertakenRunError,
    RunOverError,
    contradicting,
)
from checkpoint_store.runs.run_lineage import RunLineage, lineage_of
from checkpoint_store.runs.run_starts import RunStarts, began_before

# A host sends small output before the epoch has a manifest, so the next epoch may be quicker than
# the manifest. If no manifest comes in this time, its writer has probably died.
_SECONDS_UNTIL_MANIFEST = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64)


class EpochBases:
    """The bases of epochs in `store`. Safe to use from several threads."""

    def __init__(
        self,
        store: ObjectStore,
        published: PublishedObjects,
        starts: RunStarts,
        completion: CheckpointCompletion,
    ) -> None:
        self._store = store
        self._published = published
        self._reader = CheckpointReader(store, published)
        self._starts = starts
        self._completion = completion

    def completed_at(
        self,
        epoch: int,
        run: Run,
        parallelism: int,
        own: Barrier | None = None,
        asked: AskedKeyGroups | None = None,
    ) -> CheckpointShare | None:
        """The share, for the key groups `asked`, of the checkpoint that `run` completed at `epoch`;
        the whole checkpoint if `asked` is None. None if the run published no barrier of `epoch`.

        `own`: the barrier that the asking subtask has published at `epoch`; None if the subtask has
        published none. With `own`, the call usually costs one listing, of the manifests of `epoch`
        and of the next epoch. If `epoch` has no manifest yet, the listing is repeated for about a
        second, because the last subtask may still write the manifest. If a subtask published two
        barriers, a manifest is read, because another barrier may count in place of `own`.

        Raises PartialEpochError (I5); RunOverError (I9), if a later run has completed `epoch` or
        the next epoch; CorruptObjectError, if neither a manifest nor its barriers are intact.
        """
        names = self._manifests_of(epoch, run)
        if own is not None:
            for seconds in _SECONDS_UNTIL_MANIFEST:
                if names:
                    break
                time.sleep(seconds)
                names = self._manifests_of(epoch, run)
            summary = agreed_summary(names)
            if summary is not None:
                return share_of_own(own, summary)
        if not names and self._completion.complete(epoch, run, parallelism):
            names = self._manifests_of(epoch, run)
        return self._reader.share_of(EpochDirectory(epoch, run.number), names, asked, run)

    def _manifests_of(self, epoch: int, run: Run) -> list[ManifestName]:
        """The manifests that `run` wrote at `epoch`. Raises RunOverError if a later run has
        overtaken `run`. The older run may go on for a while, or begin late, but nothing is ever
        built upon the older run's objects."""
        manifests = self._published.manifests_until(epoch + 1)
        newest = max(manifests, key=lambda name: (name.run_number, name.epoch), default=None)
        if newest is not None and newest.run_number > run.number:
            raise RunOverError(self._store.url, run, newest.run_number, newest.epoch)
        return [m for m in manifests if (m.epoch, m.run_number) == (epoch, run.number)]

    def whole(self, share: CheckpointShare) -> CompletedCheckpoint:
        """The whole checkpoint, with all barriers, of which a share was read. Raises the errors of
        `completed_at`, and ObjectMissingError if the checkpoint is gone."""
        if share.whole is not None:
            return share.whole
        key = EpochDirectory(share.epoch, share.run.number)
        names = self._published.manifests(key.epoch, key.run_number)
        whole = self._reader.whole_of(key, names)
        if whole is None:
            text = layout.manifest_prefix(key.epoch, key.run_number)
            raise ObjectMissingError(self._store.url, f"{object_names.MANIFESTS}/{text}*")
        return whole

    def before(
        self, epoch: int, run: Run | None, asked: AskedKeyGroups | None
    ) -> CheckpointShare | None:
        """The share, for the key groups `asked`, of the checkpoint that `epoch` starts from; the
        whole checkpoint if `asked` is None. None if there was no epoch before.

        `run`: the run that is to go on from the checkpoint, None for no run. `before` is for the
        cold path only. If the previous run wrote the previous epoch, the call costs listings of the
        runs and of two epochs' manifests. Otherwise the call costs two listings of all epochs, one
        or two more for each epoch without manifest, and a few reads. Raises PartialEpochError if
        the newest earlier epoch has barriers of only some subtasks (I5), EpochNotRetainedError if
        the earlier epochs have been deleted, RunOverError and OvertakenRunError (I9),
        ContradictingRunsError (I4), CorruptObjectError.
        """
        begun = self._starts.names()
        if run is not None:
            self._starts.check_newest_of(begun, run)
            share = self._reader.latest(self._just_before(epoch, run, begun), asked)
            if share is not None:
                return share
        return self._latest_before(epoch, run, begun, asked)

    def lineage(self) -> RunLineage:
        """The epochs that count, see run_lineage. Costs three listings."""
        written = self._written(self._published.manifests())
        return lineage_of(self._starts.names(), written)

    def _written(self, manifests: Sequence[ManifestName]) -> set[EpochDirectory]:
        directories = self._published.epoch_directories()
        return {*(name.directory for name in manifests), *directories}

    def newest_summaries(self) -> list[CheckpointSummary]:
        """The summaries of the newest checkpoint with a manifest. Several summaries if several runs
        wrote the epoch and nobody knows yet which run Spark has committed. A newer epoch may exist
        that has no manifest yet. Costs a listing, and once a minute a second listing; also a read
        if the summary was too long for the manifest's name. Raises ContradictingRunsError,
        CorruptObjectError, UnsupportedFormatError."""
        manifests = self._published.manifests()
        begun = self._starts.names_of(name.run_number for name in manifests)
        lineage = lineage_of(begun, (name.directory for name in manifests))
        if lineage.contradiction is not None:
            raise contradicting(self._store.url, lineage.contradiction)
        newest = lineage.rivals or lineage.epochs[:1]
        summaries = (
            self._summary_of([name for name in manifests if name.directory == key])
            for key in newest
        )
        return [summary for summary in summaries if summary is not None]

    def _summary_of(self, manifests: Sequence[ManifestName]) -> CheckpointSummary | None:
        names = latest_first(manifests)
        if names[0].summary is not None:
            return names[0].summary
        checkpoint = self._reader.whole_of(names[0].directory, names)
        return None if checkpoint is None else share_of_all(checkpoint).summary

    def _just_before(self, epoch: int, run: Run, begun: Sequence[BegunName]) -> list[ManifestName]:
        """The manifests of the preceding epoch, if no other epoch can be the base. Empty if another
        epoch might be the base."""
        is_under_way = began_before(epoch, begun, run)
        if epoch == 0 or (not is_under_way and self._starts.noted_checkpoint(run) is None):
            return []
        until = self._published.manifests_until(epoch)
        manifests = [name for name in until if name.epoch == epoch - 1]
        own = [name for name in manifests if name.run_number == run.number]
        if own or is_under_way:
            return own  # empty if the run left out the epoch before: its base is older
        of_others = [name for name in until if name.run_number != run.number]
        if not has_one_location(begun):
            return []  # two copies of the checkpoint may both have gone on
        newest = max((name.run.number for name in begun if name.run < run), default=0)
        # Only the newest older run has the epoch before, and no other run has this epoch.
        is_certain = {(name.epoch, name.run_number) for name in of_others} == {(epoch - 1, newest)}
        return of_others if is_certain else []

    def _latest_before(
        self,
        epoch: int,
        run: Run | None,
        begun: Sequence[BegunName],
        asked: AskedKeyGroups | None,
    ) -> CheckpointShare | None:
        manifests = self._published.manifests()
        lineage = lineage_of(begun, self._written(manifests))
        is_under_way = run is not None and began_before(epoch, begun, run)
        self._check_certain(lineage, epoch)
        if run is not None:
            self._check_not_overtaken(lineage, epoch, run, is_under_way=is_under_way)
        rivals = lineage.rivals
        # If the run began earlier, Spark has committed the run's own epochs: rivals do not matter.
        if rivals and not is_under_way and rivals[0].epoch < epoch:
            counting = self._whole_rivals(rivals, manifests)
            epochs = (*counting, *lineage.epochs[len(rivals) :])
        else:
            epochs = lineage.epochs
        for key in epochs:
            if key.epoch >= epoch:
                continue
            share = self._reader.share_of(key, manifests, asked)
            if share is not None:
                return share
        if not _begins_anew(lineage, begun):
            live = {*lineage.epochs}
            of_timeline = [name for name in manifests if name.directory in live]
            self._check_retained(epoch, of_timeline or manifests)
        return None

    def _check_certain(self, lineage: RunLineage, epoch: int) -> None:
        contradiction = lineage.contradiction
        if contradiction is not None and epoch > contradiction.newer.first_epoch:
            raise contradicting(self._store.url, contradiction)

    def _check_not_overtaken(
        self, lineage: RunLineage, epoch: int, run: Run, *, is_under_way: bool
    ) -> None:
        """Raise OvertakenRunError if an older run is past the epoch that `run` asks for. Either the
        older run goes on, or the query was taken back and the query's driver did not notice
        that."""
        is_stray = is_under_way and lineage.newest_run != run.number
        if is_stray or (not is_under_way and lineage.reached > epoch):
            raise OvertakenRunError(
                self._store.url, run, epoch, lineage.newest_run, lineage.reached
            )

    def _whole_rivals(
        self, rivals: Sequence[EpochDirectory], manifests: Sequence[ManifestName]
    ) -> list[EpochDirectory]:
        """Choose the run that counts among `rivals`, the runs with the newest epoch. Return a list
        with the chosen run; an empty list if no run published anything. Raises
        ContradictingRunsError if nothing tells which run Spark committed."""
        whole = whole_rivals(
            rivals,
            lambda key: self._reader.whole_of(key, manifests),
            partial(are_same, self._store),
        )
        if len(whole) > 1:
            newer, older = whole[:2]
            raise ContradictingRunsError(
                self._store.url, newer.epoch, older.run_number, newer.run_number
            )
        return whole

    def _check_retained(self, epoch: int, manifests: Sequence[ManifestName]) -> None:
        """Check that `epoch`, for which no base was found, may start from nothing. Raise
        EpochNotRetainedError if the oldest checkpoint has a base, because then earlier checkpoints
        were deleted."""
        oldest = min(manifests, key=lambda name: (name.epoch, name.run_number), default=None)
        if oldest is None or epoch == 0:
            return
        checkpoint = self._published.read_manifest(oldest)
        if any(barrier.base_epoch is not None for barrier in checkpoint.barriers):
            raise EpochNotRetainedError(self._store.url, epoch, oldest.epoch)


def _begins_anew(lineage: RunLineage, begun: Sequence[BegunName]) -> bool:
    """True if the query was taken back to its beginning and has no epoch since then."""
    newest = (name for name in begun if name.run.number == lineage.newest_run)
    return any(name.way == "back" and name.base is None for name in newest)
