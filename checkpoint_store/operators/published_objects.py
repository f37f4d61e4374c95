"""What is published in a store: listings parsed, documents read and verified.

A damaged object counts as published: what it said is unknown, not void. It is passed over, with a
warning in the log, only where another object stands for it. Objects are immutable (I1), so what was
read or written once is remembered by name and not read again. The number of remembered objects is
bounded, and so is the number of files that they name, which take most of the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from checkpoint_store import object_names
from checkpoint_store.errors import CorruptObjectError
from checkpoint_store.files.document import Source
from checkpoint_store.objects.named_object import read_named
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.objects.passed_over import tell_passed_over
from checkpoint_store.objects.remembered import Remembered
from checkpoint_store.operators import operator_layout as layout
from checkpoint_store.operators.checkpoint_codec import decode_barrier, decode_manifest
from checkpoint_store.operators.completed_checkpoint import Barrier, CompletedCheckpoint
from checkpoint_store.operators.operator_layout import BarrierName, EpochDirectory, ManifestName

_REMEMBERED_BARRIERS = 1024
_REMEMBERED_HANDLES = 100_000

_T = TypeVar("_T")


class PublishedObjects:
    """The published objects of `store`. Safe to use from several threads; pickles, without what it
    remembers.

    `manifests`: how many are remembered; few for a writer, which goes on from the last one.
    """

    def __init__(self, store: ObjectStore, manifests: int = 4) -> None:
        self._store = store
        self._most_manifests = manifests
        self._manifests = _remembered(manifests, _handles_of_checkpoint)
        self._barriers = _remembered(_REMEMBERED_BARRIERS, _handles_of_barrier)

    def __reduce__(self) -> tuple[type[PublishedObjects], tuple[ObjectStore, int]]:
        return PublishedObjects, (self._store, self._most_manifests)

    def manifests(self) -> list[ManifestName]:
        """All manifests: one listing."""
        return [
            name
            for info in self._store.list(object_names.MANIFESTS)
            if (name := layout.parse_manifest(info.name))
        ]

    def epoch_directories(self) -> list[EpochDirectory]:
        """What each run wrote in each epoch, published or not: one listing."""
        names = self._store.list_directories(object_names.EPOCHS)
        return [name for text in names if (name := layout.parse_epoch_directory(text))]

    def barriers(self, directory: EpochDirectory) -> list[BarrierName]:
        """The barriers of one epoch and run: one listing."""
        return [
            name
            for info in self._store.list(str(directory))
            if (name := layout.parse_barrier(info.name))
        ]

    def read_manifest(self, name: ManifestName) -> CompletedCheckpoint:
        """Raises ObjectMissingError, CorruptObjectError, UnsupportedFormatError."""
        text = str(name)
        checkpoint = self._manifests.get(text)
        if checkpoint is None:
            data = read_named(self._store, text, name.epoch)
            checkpoint = decode_manifest(data, Source(self._store.url, text, name.epoch))
            self._manifests.put(text, checkpoint)
        return checkpoint

    def read_barrier(self, name: BarrierName) -> Barrier:
        """Raises ObjectMissingError, CorruptObjectError, UnsupportedFormatError."""
        text, epoch = str(name), name.directory.epoch
        barrier = self._barriers.get(text)
        if barrier is None:
            data = read_named(self._store, text, epoch)
            barrier = decode_barrier(data, Source(self._store.url, text, epoch))
            self._barriers.put(text, barrier)
        return barrier

    def read_barriers(self, names: Sequence[BarrierName]) -> list[Barrier]:
        """As read_barrier, several at once. A damaged barrier is left out if a later attempt of its
        subtask has replaced it."""
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

    def latest_intact(
        self, names: Iterable[ManifestName]
    ) -> tuple[CompletedCheckpoint | None, CorruptObjectError | None]:
        """An intact manifest of the latest barriers among those of one epoch and run, and the
        damage of another one of them, if there is any. Subtasks that publish at the same time write
        one each; what was written for earlier attempts does not stand for it. Raises
        ObjectMissingError, UnsupportedFormatError."""
        damage: CorruptObjectError | None = None
        ordered = latest_first(names)
        for name in ordered:
            if name.attempts != ordered[0].attempts:
                break
            try:
                return self.read_manifest(name), damage
            except CorruptObjectError as error:
                tell_passed_over("manifest", error)
                damage = damage or error
        return None, damage

    def remember_manifest(self, name: ManifestName, checkpoint: CompletedCheckpoint) -> None:
        """Spare a later read of what this process wrote."""
        self._manifests.put(str(name), checkpoint)

    def remember_barrier(self, name: BarrierName, barrier: Barrier) -> None:
        """Spare a later read of what this process wrote."""
        self._barriers.put(str(name), barrier)


def latest_first(names: Iterable[ManifestName]) -> list[ManifestName]:
    """Manifests of one epoch and run, the one that counts first."""
    return sorted(names, key=lambda name: (name.attempts, name.unique), reverse=True)


def _replaces(name: BarrierName, other: BarrierName) -> bool:
    """Whether a barrier is of a later attempt of the same subtask."""
    is_same_subtask = (name.directory, name.subtask, name.parallelism) == (
        other.directory,
        other.subtask,
        other.parallelism,
    )
    return is_same_subtask and (name.attempt, name.unique) > (other.attempt, other.unique)


def _remembered(most: int, handles_of: Callable[[_T], int]) -> Remembered[str, _T]:
    """About `most` values, which name at most `_REMEMBERED_HANDLES` files together; or a single
    one, however many it names."""
    # With this share as the least weight of a value, about `most` of them fit.
    share = _REMEMBERED_HANDLES // most
    most_handles = _REMEMBERED_HANDLES
    return Remembered(most_handles, lambda value: min(max(handles_of(value), share), most_handles))


def _handles_of_barrier(barrier: Barrier) -> int:
    parts = sum(len(handle.parts) for handle in barrier.handles)
    return len(barrier.handles) + parts + (barrier.operator_state is not None)


def _handles_of_checkpoint(checkpoint: CompletedCheckpoint) -> int:
    return sum(map(_handles_of_barrier, checkpoint.barriers))
