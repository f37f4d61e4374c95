"""Completes an epoch: turns the barriers of its subtasks into a manifest.

    few subtasks    barriers -------------> manifest with the barriers
    very many       barriers -> groups ---> manifest with the names of the groups

A subtask publishes its barrier, then lists the barriers of its group. If the list is complete, the
subtask reads the barriers, writes the group, then lists the groups. If all groups exist, the
subtask writes the manifest. Each subtask first puts an object and then lists. So the last subtask
of a group sees all barriers of the group, and the last subtask of an epoch sees all groups. Several
subtasks may be last at the same time: each checks first if another subtask has already written the
same object.

The name of a group or manifest holds the sum of the barriers' attempts and the summary of the
barriers; the name of a group also holds the base epoch. So a listing shows all that a host needs
to know, and the host need not read the groups or the manifest.

A subtask may publish two barriers of an epoch, from two hosts. The later attempt counts. If a
manifest was written without the later attempt, a second manifest with the later attempt follows. As
soon as a second barrier is seen, the manifest calls the epoch contested, whichever barrier counts.
Then every subtask checks if its own barrier counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from checkpoint_store.epochs.barrier_alignment import align, counted_base
from checkpoint_store.epochs.checkpoint_codec import encode_group, encode_manifest
from checkpoint_store.epochs.checkpoint_summary import CheckpointSummary, joined, summary_of
from checkpoint_store.epochs.completed_checkpoint import (
    Barrier,
    CompletedCheckpoint,
    GroupedCheckpoint,
    Run,
)
from checkpoint_store.epochs.operator_layout import (
    BarrierName,
    EpochDirectory,
    GroupName,
    ManifestName,
)
from checkpoint_store.epochs.published_objects import PublishedObjects
from checkpoint_store.epochs.subtask_groups import SubtaskGroup, SubtaskGroups, digits_of
from checkpoint_store.objects.named_object import unique_of_uuid
from checkpoint_store.objects.object_store import ObjectStore


class CheckpointCompletion:
    """The completion of epochs in `store`. Safe to use from several threads.

    `published`: the objects of the store; `groups`: the size of groups.
    """

    def __init__(
        self, store: ObjectStore, published: PublishedObjects, groups: SubtaskGroups
    ) -> None:
        self._store = store
        self._published = published
        self._groups = groups

    def complete(self, epoch: int, run: Run, parallelism: int, subtask: int | None = None) -> bool:
        """Write the manifest of an epoch if all barriers exist. Return True if all barriers exist.

        `subtask`: the subtask that has just published its barrier, so only its group may have
        become complete. None: look at the groups of all subtasks.
        """
        directory = EpochDirectory(epoch, run.number)
        groups = self._groups.of(parallelism)
        looked_at = groups if subtask is None else [self._groups.group_with(subtask, parallelism)]
        for group in looked_at:
            if not self._complete_group(directory, run, parallelism, group):
                return False
        is_one = len(groups) == 1  # a single group is the whole epoch
        return is_one or self._complete_groups(directory, run, parallelism)

    def missing_subtasks(self, epoch: int, run: Run, parallelism: int) -> tuple[int, ...]:
        """The subtasks that have published no barrier of `epoch` in this run. Costs two
        listings."""
        if self._published.manifests(epoch, run.number):
            return ()
        names = self._barrier_names(EpochDirectory(epoch, run.number), parallelism)
        present = {name.subtask for name in names}
        return tuple(subtask for subtask in range(parallelism) if subtask not in present)

    def is_repeated(self, barrier: Barrier) -> bool:
        """True if another attempt has published a barrier of this subtask, epoch and run. Costs one
        listing."""
        directory = EpochDirectory(barrier.epoch, barrier.run.number)
        names = self._published.barriers(directory, digits_of(barrier.subtask))
        return any(name.attempt != barrier.attempt for name in names)

    def _complete_group(
        self, directory: EpochDirectory, run: Run, parallelism: int, group: SubtaskGroup
    ) -> bool:
        """Write a group if each of its subtasks has a barrier, and return True in this case. If the
        group is the whole epoch, the manifest is written instead."""
        names = self._barrier_names(directory, parallelism, self._groups.digits_of(group))
        if len({name.subtask for name in names}) < len(group):
            return False  # the names tell; no barrier is read
        is_contested = len(names) > len(group)
        is_one = len(group) == parallelism
        written: Sequence[ManifestName | GroupName] = (
            self._published.manifests(directory.epoch, directory.run_number)
            if is_one
            else _of_parallelism(parallelism, self._published.groups(directory, group))
        )
        if _are_written(written, _attempts(names), is_contested=is_contested):
            return True
        barriers = self._aligned(names, directory, run, parallelism)
        if len(barriers) < len(group):
            return False
        summary = summary_of(barriers, is_contested=is_contested)
        if is_one:
            whole = CompletedCheckpoint(directory.epoch, run, parallelism, barriers)
            self._put_manifest(whole, _sum_of_attempts(barriers), summary)
        else:
            self._put_group(directory, group, barriers, summary)
        return True

    def _aligned(
        self, names: Sequence[BarrierName], directory: EpochDirectory, run: Run, parallelism: int
    ) -> tuple[Barrier, ...]:
        """Read the barriers with these names. Return for each subtask the barrier that counts,
        ordered by subtask."""
        alignment = align(self._published.read_barriers(names), directory.epoch, run, parallelism)
        return tuple(alignment.barriers[subtask] for subtask in alignment.present())

    def _barrier_names(
        self, directory: EpochDirectory, parallelism: int, digits: str = ""
    ) -> list[BarrierName]:
        """The names of the barriers written at this parallelism, in any order. `digits`: only
        barriers of subtasks whose numbers begin with these digits."""
        names = self._published.barriers(directory, digits)
        return [name for name in names if name.parallelism == parallelism]

    def _complete_groups(self, directory: EpochDirectory, run: Run, parallelism: int) -> bool:
        names = _of_parallelism(parallelism, self._published.groups(directory))
        newest = self._newest(names)
        groups = self._groups.of(parallelism)
        if any(group not in newest for group in groups):
            return False
        chosen = [newest[group] for group in groups]
        is_contested = any(name.summary is None or name.summary.is_contested for name in names)
        attempts = sum(name.attempts for name in chosen)
        written = self._published.manifests(directory.epoch, directory.run_number)
        if not _are_written(written, attempts, is_contested=is_contested):
            summarised = [name.summary for name in chosen if name.summary is not None]
            summary = None
            if len(summarised) == len(chosen):
                summary = joined(summarised, is_contested=is_contested)
            objects = tuple((name.group, str(name)) for name in chosen)
            checkpoint = GroupedCheckpoint(directory.epoch, run, parallelism, objects)
            self._put_manifest(checkpoint, attempts, summary)
        return True

    def _newest(self, names: Sequence[GroupName]) -> dict[SubtaskGroup, GroupName]:
        """The object that counts for each group. Objects with an older base epoch than another
        object are from a zombie and are left out (I4)."""
        base = max((counted_base(name.base_epoch) for name in names), default=-1)
        ordered = sorted(names, key=lambda name: (name.attempts, name.unique))
        return {name.group: name for name in ordered if counted_base(name.base_epoch) == base}

    def _put_manifest(
        self,
        checkpoint: CompletedCheckpoint | GroupedCheckpoint,
        attempts: int,
        summary: CheckpointSummary | None,
    ) -> None:
        name = ManifestName(
            epoch=checkpoint.epoch,
            run_number=checkpoint.run.number,
            attempts=attempts,
            unique=unique_of_uuid(),
            summary_text="" if summary is None else summary.to_text(),
        )
        self._store.put(str(name), encode_manifest(checkpoint))
        self._published.remember_manifest(name, checkpoint)

    def _put_group(
        self,
        directory: EpochDirectory,
        group: SubtaskGroup,
        barriers: Sequence[Barrier],
        summary: CheckpointSummary,
    ) -> None:
        name = GroupName(
            directory=directory,
            group=group,
            parallelism=barriers[0].parallelism,
            base_epoch=barriers[0].base_epoch,
            attempts=_sum_of_attempts(barriers),
            unique=unique_of_uuid(),
            summary_text=summary.to_text(),
        )
        self._store.put(str(name), encode_group(barriers))


def _sum_of_attempts(barriers: Iterable[Barrier]) -> int:
    return sum(barrier.attempt for barrier in barriers)


def _attempts(names: Iterable[BarrierName]) -> int:
    """The sum of the barriers' attempts, with only the latest attempt of each subtask. A group or
    manifest written from these barriers has this sum in its name."""
    latest: dict[int, int] = {}
    for name in names:
        latest[name.subtask] = max(name.attempt, latest.get(name.subtask, 0))
    return sum(latest.values())


def _are_written(
    written: Iterable[ManifestName | GroupName], attempts: int, *, is_contested: bool
) -> bool:
    """True if an object in `written` has the sum `attempts` in its name, so no further object must
    be written.

    If the epoch is contested (a subtask published more than one barrier), an object in `written`
    must also say in its name that the epoch is contested. A name without a summary counts as such
    a name.
    """
    names = [*written]
    says_contested = any(name.summary is None or name.summary.is_contested for name in names)
    return any(name.attempts == attempts for name in names) and says_contested >= is_contested


def _of_parallelism(parallelism: int, names: Iterable[GroupName]) -> list[GroupName]:
    return [name for name in names if name.parallelism == parallelism]
