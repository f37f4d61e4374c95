"""Decides from which epochs a query goes on when its stores are attached to a checkpoint. Pure.

The base of each operator is the newest whole epoch of the operator's live timeline (see
run_lineage), up to the last batch in Spark's commit log. If the runs of an operator contradict each
other up to this batch, the user has to name the run that counts:

    run 1    3  4  5           the runs contradict each other from epoch 4 on
    run 2       4  5  6        committed up to 3: epoch 3 of run 1, whichever run is right
                               committed up to 5: epoch 5 of run 1 or of run 2, as the user chooses

Spark commits no epoch that lacks subtasks. So if two runs have written a committed epoch, the run
with the whole epoch counts.

Even a timeline without contradiction may not be the timeline of this checkpoint: another copy of
the checkpoint may have been attached, or the query may have been taken back after this checkpoint
was copied. In both cases the epochs of this checkpoint may be epochs of a run that no longer
counts. If such a run wrote the same epochs with another result, the user has to name the run that
counts. A store that already belongs to this checkpoint needs no such choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from checkpoint_store.amounts import epochs_text
from checkpoint_store.epochs.completed_checkpoint import CompletedCheckpoint
from checkpoint_store.epochs.operator_layout import BegunName, EpochDirectory
from checkpoint_store.errors import PartialEpochError
from checkpoint_store.runs.checkpoint_location import owner_of
from checkpoint_store.runs.rival_checkpoints import AreSame, Completed, whole_rivals
from checkpoint_store.runs.run_errors import NoEpochToAttachError, RunChoiceError
from checkpoint_store.runs.run_lineage import (
    RunLineage,
    lineage_of,
    reached_by_run,
    timeline_of,
)


@dataclass(frozen=True, slots=True)
class StoredRuns:
    """The runs of an operator, as the operator's store shows the runs.

    `begun`: the starts of the runs; `written`: every epoch and run with any object in the store;
    `completed`: returns a run's checkpoint at an epoch, None if the run published nothing at the
    epoch, and raises PartialEpochError; `are_same`: returns True if two runs completed the same
    state at an epoch.
    """

    url: str
    begun: Sequence[BegunName]
    written: frozenset[EpochDirectory]
    completed: Completed = field(repr=False)
    are_same: AreSame = field(repr=False)

    def begun_as(self, number: int) -> BegunName | None:
        """The start of the run with a number."""
        return next((name for name in self.starts() if name.run.number == number), None)

    def starts(self) -> list[BegunName]:
        """The starts of all runs, without the other objects of runs under `begun/`."""
        return [name for name in self.begun if name.is_start]

    def told(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """The runs as error messages show them: ids and written epochs."""
        return tuple(self._told(number) for number in sorted(numbers))

    def _told(self, number: int) -> str:
        name = self.begun_as(number)
        run_id = "" if name is None else f" ({name.run.run_id})"
        epochs = sorted(each.epoch for each in self.written if each.run_number == number)
        wrote = f"wrote {epochs_text(epochs[0], epochs[-1])}" if epochs else "wrote no epoch"
        base = "" if name is None or name.base is None else f" from epoch {name.base.epoch} on"
        return f"run {number}{run_id} {wrote}{base}"


@dataclass(frozen=True, slots=True)
class Attachment:
    """The way in which an operator goes on from an attached store.

    `base`: the epoch, and its run, to go on from; None to begin with nothing. `left_out`: epochs
    that count, or might count, before the attachment, but not after the attachment. `cuts`: the
    older runs whose epochs after the base are taken back for good, each with the run's last epoch.
    `is_needed`: False if the store already belongs to the checkpoint and goes on from the base
    without a change.
    """

    base: EpochDirectory | None
    left_out: tuple[EpochDirectory, ...]
    cuts: tuple[EpochDirectory, ...]
    is_needed: bool


def attachments_of(
    stores: Sequence[StoredRuns],
    checkpoint: str,
    committed: int,
    run: str | None = None,
    *,
    is_under_way: bool,
) -> list[Attachment]:
    """Decide how each operator of a query goes on.

    `checkpoint`: the digest of the checkpoint's location, see `digest_of`; `committed`: Spark's
    last committed batch, -1 if there is no batch; `run`: the number or the id of the run whose
    epochs count, None if no run was chosen; `is_under_way`: True if the batch after the last
    committed batch is planned, so a driver may still commit the batch. Raises RunChoiceError,
    NoEpochToAttachError and PartialEpochError.
    """
    chosen = [None] * len(stores) if run is None else _chosen(stores, run)
    firsts = [name.first_epoch for name in chosen if name is not None]
    attachments = []
    for runs, name in zip(stores, chosen, strict=True):
        # In a store without the chosen run, only epochs before the run's first epoch count.
        until = min([committed, *(first - 1 for first in firsts if name is None)])
        under_way = committed + 1 if is_under_way and until == committed else None
        attachments.append(_attachment(runs, checkpoint, until, name, under_way))
    return attachments


def _chosen(stores: Sequence[StoredRuns], run: str) -> list[BegunName | None]:
    """The start of the chosen run in each store; None for a store without the run. `run`: number or
    id. Numbers belong to a store, so the same number has to be the same run in all stores."""
    names = [name for runs in stores for name in runs.starts()]
    matching = {name.run.run_id for name in names if run in (str(name.run.number), name.run.run_id)}
    if len(matching) != 1:
        problem = f"there is no run {run}"
        if matching:
            ids = " and ".join(sorted(matching))
            problem = f"run {run} is not the same in all operators, so give its id: {ids}"
        told = stores[0].told({name.run.number for name in stores[0].starts()})
        raise RunChoiceError(stores[0].url, problem, told)
    (run_id,) = matching
    return [
        next((name for name in runs.starts() if name.run.run_id == run_id), None) for runs in stores
    ]


def _attachment(
    runs: StoredRuns,
    checkpoint: str,
    committed: int,
    chosen: BegunName | None,
    under_way: int | None,
) -> Attachment:
    lineage = lineage_of(runs.begun, runs.written)
    owner = owner_of(runs.begun)
    is_own = owner is not None and owner.checkpoint == checkpoint
    timeline = (
        _certain(runs, lineage, committed)
        if chosen is None
        else timeline_of(runs.begun, runs.written, chosen.run.number)
    )
    bases = _newest_whole(runs, timeline, committed)
    if not bases and not _began_after(runs, committed):
        epochs = sorted(each.epoch for each in runs.written)
        raise NoEpochToAttachError(runs.url, committed, epochs_text(epochs[0], epochs[-1]))
    if len(bases) > 1:
        raise _unclear(runs, bases)
    base = bases[0] if bases else None
    if base is not None and chosen is None:
        _check_no_other(runs, timeline, base, committed, is_own=is_own)
    elif (
        base is not None
        and chosen is not None
        and base.run_number != chosen.run.number
        and chosen.first_epoch <= committed
    ):
        number = chosen.run.number
        raise RunChoiceError(
            runs.url,
            f"run {number} has no whole epoch up to batch {committed}",
            runs.told({number, base.run_number}),
        )
    live = {
        each for each in timeline if base is not None and (each == base or each.epoch < base.epoch)
    }
    left_out = (each for each in runs.written - live if _might_count(each, lineage, base))
    return Attachment(
        base=base,
        left_out=tuple(sorted(left_out, key=lambda each: (each.run_number, each.epoch))),
        cuts=_cuts(runs, base, under_way),
        is_needed=not (is_own and _goes_on_from(runs, lineage, base, committed, under_way)),
    )


def _began_after(runs: StoredRuns, committed: int) -> bool:
    """True if the operator begins with nothing, because it had no epoch up to batch `committed`:

    - no batch is committed, or
    - the operator has no epoch, or
    - the operator's oldest epoch is later than `committed`, and started from an empty state.
    """
    if committed < 0:
        return True
    oldest = min(runs.written, key=lambda each: (each.epoch, each.run_number), default=None)
    name = None if oldest is None else runs.begun_as(oldest.run_number)
    if oldest is None or name is None:
        return oldest is None
    return oldest.epoch > committed and name.base is None and name.first_epoch == oldest.epoch


def _certain(runs: StoredRuns, lineage: RunLineage, committed: int) -> tuple[EpochDirectory, ...]:
    """The live timeline. Raises RunChoiceError if runs contradict each other up to batch
    `committed`."""
    contradiction = lineage.contradiction
    if contradiction is not None and contradiction.newer.first_epoch <= committed:
        first = contradiction.newer.first_epoch
        raise _unclear(runs, [each for each in runs.written if first <= each.epoch <= committed])
    return lineage.epochs


def _newest_whole(
    runs: StoredRuns, timeline: Iterable[EpochDirectory], committed: int
) -> list[EpochDirectory]:
    """The newest whole epoch of the timeline, up to batch `committed`; empty if there is none. The
    list has several entries if several runs wrote the epoch with different states. Raises
    PartialEpochError if only parts of the epoch were published (I5)."""
    counting = (each for each in timeline if each.epoch <= committed)
    for _, directories in groupby(counting, key=lambda each: each.epoch):
        if whole := whole_rivals(directories, runs.completed, runs.are_same):
            return whole
    return []


def _check_no_other(
    runs: StoredRuns,
    timeline: Sequence[EpochDirectory],
    base: EpochDirectory,
    committed: int,
    *,
    is_own: bool,
) -> None:
    """Raise RunChoiceError if a run that does not count may have written the epochs that Spark
    committed.

    There are two such cases:

    - A run that does not count completed a committed epoch later than `base`. Then the query was
      taken back after this checkpoint was copied.
    - A run that does not count completed the same epoch as a run that counts, with another result,
      and `_is_decided` is False. Then nobody knows which result Spark had committed when this
      checkpoint was copied or moved.

    `is_own`: the store belongs to this checkpoint, so the second case is no error.
    """
    counting = {each.epoch: each for each in timeline if each.epoch < base.epoch}
    others = [each for each in runs.written.difference(timeline) if each.epoch <= committed]
    for other in sorted(others, key=lambda each: each.epoch, reverse=True):
        rival = counting.get(other.epoch, base)
        is_decided = is_own or _is_decided(runs, other, rival)
        if other.epoch > base.epoch or not is_decided:
            _check_same(runs, other, rival)


def _is_decided(runs: StoredRuns, other: EpochDirectory, counting: EpochDirectory) -> bool:
    """True if one commit log has decided that `other` does not count. Both runs must have told the
    same location, and no run after the run of `other` may have taken the query back to an earlier
    epoch than `other`."""
    names = [runs.begun_as(each.run_number) for each in (other, counting)]
    locations = {None if name is None else name.checkpoint for name in names}
    later = (name for name in runs.starts() if name.run.number > other.run_number)
    was_taken_back = any(
        name.way == "back" and (name.base is None or name.base.epoch < other.epoch)
        for name in later
    )
    return len(locations) == 1 and None not in locations and not was_taken_back


def _check_same(runs: StoredRuns, other: EpochDirectory, counting: EpochDirectory) -> None:
    checkpoint = _whole(runs, other)
    if checkpoint is None:
        return
    rival = _whole(runs, counting) if other.epoch == counting.epoch else None
    if rival is None or not runs.are_same(rival, checkpoint):
        raise _unclear(runs, [other, counting])


def _whole(runs: StoredRuns, directory: EpochDirectory) -> CompletedCheckpoint | None:
    """A run's checkpoint at an epoch. None if the epoch is not whole, so Spark has not committed
    the epoch."""
    try:
        return runs.completed(directory)
    except PartialEpochError:
        return None


def _unclear(runs: StoredRuns, epochs: Iterable[EpochDirectory]) -> RunChoiceError:
    numbers = {each.run_number for each in epochs}
    problem = "nobody can tell from the store which run Spark has committed"
    return RunChoiceError(runs.url, problem, runs.told(numbers))


def _might_count(
    directory: EpochDirectory, lineage: RunLineage, base: EpochDirectory | None
) -> bool:
    contradiction = lineage.contradiction
    is_disputed = contradiction and directory.epoch >= contradiction.newer.first_epoch
    is_later = base is None or directory.epoch > base.epoch
    return is_later or directory in lineage.epochs or bool(is_disputed)


def _cuts(
    runs: StoredRuns, base: EpochDirectory | None, under_way: int | None
) -> tuple[EpochDirectory, ...]:
    """The cuts of an Attachment: for each run with epochs after the base, the run's last epoch.

    The run of the base always has a cut: the base itself, if the run has no later epoch.
    `under_way`: the epoch after the last committed batch, if a driver may still commit the epoch.
    This epoch is not cut, unless the run has noted that Spark committed the epoch. None: all epochs
    after the base are cut.
    """
    noted = reached_by_run(runs.begun)
    newest = {} if base is None else {base.run_number: base}
    for each in sorted(runs.written, key=lambda each: each.epoch):
        is_open = each.epoch == under_way and noted.get(each.run_number, -1) <= each.epoch
        if (base is None or each.epoch > base.epoch) and not is_open:
            newest[each.run_number] = each
    return tuple(newest[number] for number in sorted(newest))


def _goes_on_from(
    runs: StoredRuns,
    lineage: RunLineage,
    base: EpochDirectory | None,
    committed: int,
    under_way: int | None,
) -> bool:
    """True if the query's next run goes on from `base` by itself, so the store need not change."""
    last = committed if under_way is None else under_way
    if lineage.contradiction is not None or lineage.reached > last:
        return False
    try:
        return _newest_whole(runs, lineage.epochs, committed) == ([] if base is None else [base])
    except PartialEpochError:
        return False
