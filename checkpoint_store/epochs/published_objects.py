"""The published objects of a store: listings parsed, documents read and verified.

A damaged object counts as published: its content is unknown, but not empty. Readers pass over a
damaged object, with a warning in the log, only if another object takes its place. Objects are
immutable (I1). So each object read or written is remembered by name and not read again. Two limits
bound the memory: the number of remembered objects, and the number of files named by the objects,
because file names take most of the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from checkpoint_store import object_names
from checkpoint_store.epochs import operator_layout as layout
from checkpoint_store.epochs.checkpoint_codec import (
    decode_barrier,
    decode_group,
    decode_manifest,
)
from checkpoint_store.epochs.checkpoint_share import (
    AskedKeyGroups,
    CheckpointShare,
    share_of_all,
)
from checkpoint_store.epochs.completed_checkpoint import (
    Barrier,
    CompletedCheckpoint,
    GroupedCheckpoint,
)
from checkpoint_store.epochs.operator_layout import (
    BarrierName,
    EpochDirectory,
    GroupName,
    ManifestName,
)
from checkpoint_store.epochs.subtask_groups import SubtaskGroup
from checkpoint_store.errors import CorruptObjectError, ObjectMissingError
from checkpoint_store.files.document import Source
from checkpoint_store.objects.named_object import list_named, read_named
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.objects.passed_over import tell_passed_over
from checkpoint_store.objects.remembered import Remembered

_REMEMBERED_BARRIERS = 1024
_REMEMBERED_GROUPS = 128
_REMEMBERED_HANDLES = 100_000

_T = TypeVar("_T")


class PublishedObjects:
    """The published objects of `store`. Safe to use from several threads. Pickling drops the
    remembered objects.

    `manifests`: how many manifests are remembered. A writer needs few, because the writer goes on
    from the last manifest.
    """

    def __init__(self, store: ObjectStore, manifests: int = 4) -> None:
        self._store = store
        self._most_manifests = manifests
        self._manifests = _remembered(manifests, _handles_of_checkpoint)
        self._barriers = _remembered(_REMEMBERED_BARRIERS, _handles_of_barrier)
        self._groups = _remembered(_REMEMBERED_GROUPS, _handles_of_barriers)

    def __reduce__(self) -> tuple[type[PublishedObjects], tuple[ObjectStore, int]]:
        return PublishedObjects, (self._store, self._most_manifests)

    def manifests(
        self, epoch: int | None = None, run_number: int | None = None
    ) -> list[ManifestName]:
        """The names of all manifests, or of an epoch's manifests, or of a run's manifests of an
        epoch. Costs one listing."""
        prefix = "" if epoch is None else layout.manifest_prefix(epoch, run_number)
        return self._manifests_with(prefix)

    def _manifests_with(self, prefix: str) -> list[ManifestName]:
        return [*list_named(self._store, object_names.MANIFESTS, layout.parse_manifest, prefix)]

    def manifests_until(self, epoch: int) -> list[ManifestName]:
        """The names of the manifests of an epoch and of the preceding epoch. Costs one listing. If
        the epoch is a multiple of 10, costs two listings."""
        epochs = {max(epoch - 1, 0), epoch}
        # Nine times of ten the names of both epochs share the first 18 digits. Few other names do.
        prefixes = {layout.manifest_prefix(number)[:-2] for number in epochs}
        names = chain.from_iterable(map(self._manifests_with, sorted(prefixes)))
        return [name for name in names if name.epoch in epochs]

    def epoch_directories(self) -> list[EpochDirectory]:
        """The directories of all epochs and runs, published or not. Costs one listing."""
        names = self._store.list_directories(object_names.EPOCHS)
        return [name for text in names if (name := layout.parse_epoch_directory(text))]

    def barriers(self, directory: EpochDirectory, digits: str = "") -> list[BarrierName]:
        """The names of the barriers of one epoch and run, for subtasks whose numbers begin with
        `digits`. Costs one listing."""
        prefix = f"{object_names.BARRIER_PREFIX}{digits}"
        return [*list_named(self._store, str(directory), layout.parse_barrier, prefix)]

    def groups(
        self, directory: EpochDirectory, group: SubtaskGroup | None = None
    ) -> list[GroupName]:
        """The names of all group objects of one epoch and run, or of the objects of one group.
        Costs one listing."""
        first = "" if group is None else f"{group.first:05d}-"
        prefix = f"{object_names.GROUP_PREFIX}{first}"
        return [*list_named(self._store, str(directory), layout.parse_group, prefix)]

    def read_manifest(self, name: ManifestName) -> CompletedCheckpoint:
        """Read the checkpoint of a manifest, with all barriers.

        Raises ObjectMissingError, CorruptObjectError, UnsupportedFormatError.
        """
        said = self._manifest(name)
        if isinstance(said, CompletedCheckpoint):
            return said
        barriers = self._barriers_of(name, said, said.groups)
        objects = tuple(text for _, text in said.groups)
        return CompletedCheckpoint(said.epoch, said.run, said.parallelism, barriers, objects)

    def read_share(self, name: ManifestName, asked: AskedKeyGroups | None) -> CheckpointShare:
        """Read a manifest's share for the key groups `asked`, or the whole checkpoint. Raises the
        errors of `read_manifest`."""
        if asked is None:
            return share_of_all(self.read_manifest(name))
        said, summary = self._manifest(name), name.summary
        if isinstance(said, CompletedCheckpoint) or summary is None:
            whole = self.read_manifest(name)
            share = share_of_all(whole)
            return share if summary is None else replace(share, summary=summary)
        needed = [entry for entry in said.groups if asked.are_in(entry[0], said.parallelism)]
        barriers = self._barriers_of(name, said, needed)
        return CheckpointShare(said.epoch, said.run, said.parallelism, barriers, summary)

    def _barriers_of(
        self,
        name: ManifestName,
        checkpoint: GroupedCheckpoint,
        groups: Sequence[tuple[SubtaskGroup, str]],
    ) -> tuple[Barrier, ...]:
        directory = EpochDirectory(checkpoint.epoch, checkpoint.run.number)

        def read(entry: tuple[SubtaskGroup, str]) -> tuple[Barrier, ...]:
            group, text = entry
            barriers = self._group(text, directory, checkpoint.parallelism, group)
            if any(barrier.run != checkpoint.run for barrier in barriers):
                raise self._not_of(group, text, checkpoint.epoch)
            return barriers

        try:
            return tuple(chain.from_iterable(in_parallel(read, groups)))
        except ObjectMissingError as error:
            # Deletion takes a manifest before its groups. If both are gone, report the manifest.
            read_named(self._store, str(name), name.epoch)
            problem = f"it is missing, and {name} names it"
            raise CorruptObjectError(self._store.url, error.name, problem, name.epoch) from error

    def _group(
        self, text: str, directory: EpochDirectory, parallelism: int, group: SubtaskGroup
    ) -> tuple[Barrier, ...]:
        barriers = self._read_once(self._groups, text, directory.epoch, decode_group)
        said = [(EpochDirectory(b.epoch, b.run.number), b.parallelism, b.subtask) for b in barriers]
        subtasks = range(group.first, group.last + 1)
        if said != [(directory, parallelism, subtask) for subtask in subtasks]:
            raise self._not_of(group, text, directory.epoch)
        return barriers

    def _not_of(self, group: SubtaskGroup, text: str, epoch: int) -> CorruptObjectError:
        problem = f"not the barriers of subtasks {group.first} to {group.last}"
        return CorruptObjectError(self._store.url, text, problem, epoch)

    def _manifest(self, name: ManifestName) -> CompletedCheckpoint | GroupedCheckpoint:
        return self._read_once(self._manifests, str(name), name.epoch, decode_manifest)

    def _read_once(
        self,
        remembered: Remembered[str, _T],
        name: str,
        epoch: int,
        decode: Callable[[bytes, Source], _T],
    ) -> _T:
        said = remembered.get(name)
        if said is None:
            data = read_named(self._store, name, epoch)
            said = decode(data, Source(self._store.url, name, epoch))
            remembered.put(name, said)
        return said

    def read_barrier(self, name: BarrierName) -> Barrier:
        """Read a barrier. Raises the errors of `read_manifest`."""
        return self._read_once(self._barriers, str(name), name.directory.epoch, decode_barrier)

    def read_barriers(self, names: Sequence[BarrierName]) -> list[Barrier]:
        """Read several barriers at once. A damaged barrier is left out if a later attempt of its
        subtask has replaced the barrier. Raises the errors of `read_barrier`."""
        read = dict(zip(names, in_parallel(self._barrier_or_damage, names), strict=True))
        intact = {name: outcome for name, outcome in read.items() if isinstance(outcome, Barrier)}
        for name, outcome in read.items():
            if isinstance(outcome, CorruptObjectError):
                if not any(_replaces(other, name) for other in intact):
                    raise outcome
                tell_passed_over("barrier", outcome)
        return [*intact.values()]

    def _barrier_or_damage(self, name: BarrierName) -> Barrier | CorruptObjectError:
        try:
            return self.read_barrier(name)
        except CorruptObjectError as error:
            return error

    def latest_read(
        self, names: Iterable[ManifestName], read: Callable[[ManifestName], _T]
    ) -> tuple[_T | None, CorruptObjectError | None]:
        """Apply `read` to an intact manifest that was written from the latest barriers of one epoch
        and run. Return two values: the result, None if no manifest is intact; and the error of a
        damaged manifest, None if no damage was found.

        Subtasks that publish at the same time write a manifest each, so an intact manifest may take
        the place of a damaged manifest. A manifest written from earlier attempts never takes the
        place of a damaged manifest. Raises ObjectMissingError, UnsupportedFormatError.
        """
        damage: CorruptObjectError | None = None
        ordered = latest_first(names)
        for name in ordered:
            if name.attempts != ordered[0].attempts:
                break
            try:
                return read(name), damage
            except CorruptObjectError as error:
                what = "group" if object_names.is_group(error.name) else "manifest"
                tell_passed_over(what, error)
                damage = damage or error
        return None, damage

    def remember_manifest(
        self, name: ManifestName, checkpoint: CompletedCheckpoint | GroupedCheckpoint
    ) -> None:
        """Remember a manifest that this process wrote, to spare a later read."""
        self._manifests.put(str(name), checkpoint)

    def remember_barrier(self, name: BarrierName, barrier: Barrier) -> None:
        """Remember a barrier that this process wrote, to spare a later read."""
        self._barriers.put(str(name), barrier)


def latest_first(names: Iterable[ManifestName]) -> list[ManifestName]:
    """Sort manifests of one epoch and run, the manifest that counts first."""
    return sorted(names, key=lambda name: (name.attempts, name.unique), reverse=True)


def _replaces(name: BarrierName, other: BarrierName) -> bool:
    """True if `name` is of a later attempt than `other`, at the same subtask."""
    of_same_subtask = replace(name, attempt=other.attempt, unique=other.unique) == other
    return of_same_subtask and (name.attempt, name.unique) > (other.attempt, other.unique)


def _remembered(most: int, handles_of: Callable[[_T], int]) -> Remembered[str, _T]:
    """A memory for about `most` values that together name at most `_REMEMBERED_HANDLES` files. A
    single value is remembered however many files the value names."""
    # A value weighs at least this share, so about `most` values fit.
    share = _REMEMBERED_HANDLES // most
    most_handles = _REMEMBERED_HANDLES
    return Remembered(most_handles, lambda value: min(max(handles_of(value), share), most_handles))


def _handles_of_barrier(barrier: Barrier) -> int:
    parts = sum(len(handle.parts) for handle in barrier.handles)
    return len(barrier.handles) + parts + (barrier.operator_state is not None)


def _handles_of_barriers(barriers: tuple[Barrier, ...]) -> int:
    return sum(map(_handles_of_barrier, barriers))


def _handles_of_checkpoint(checkpoint: CompletedCheckpoint | GroupedCheckpoint) -> int:
    if isinstance(checkpoint, GroupedCheckpoint):
        return len(checkpoint.groups)
    return _handles_of_barriers(checkpoint.barriers)
