"""Reads published objects for a clean-up that goes on despite unreadable objects.

A damaged object, or an object of a newer release, is passed over and reported once. The name of
a manifest has the total of the attempt numbers of its barriers. An unreadable manifest is rebuilt
from the barriers of its epoch and run if their attempt numbers add up to this total: then the
manifest was written from these barriers. Otherwise the manifest's files are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TypeVar

from checkpoint_store.epochs.barrier_alignment import align
from checkpoint_store.epochs.completed_checkpoint import Barrier, CompletedCheckpoint
from checkpoint_store.epochs.operator_layout import EpochDirectory, ManifestName
from checkpoint_store.epochs.published_objects import PublishedObjects
from checkpoint_store.errors import (
    CorruptObjectError,
    ObjectMissingError,
    UnsupportedFormatError,
)
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.objects.passed_over import tell_unreadable

_T = TypeVar("_T")
# Number of manifests in memory at a time; more if a single epoch has more manifests.
_READ_AT_ONCE = 8


# Stands for an unreadable object, which may name any file of its epoch or of an older epoch (I8).
Unknown = CorruptObjectError | UnsupportedFormatError


class ReadableObjects:
    """The published objects of a store. Safe to use from several threads."""

    def __init__(self, published: PublishedObjects) -> None:
        self._published = published

    def manifests(
        self, names: Iterable[ManifestName], others: Sequence[ManifestName] = ()
    ) -> Iterator[tuple[ManifestName, CompletedCheckpoint | Unknown | None]]:
        """Read manifests, a few epochs at a time. Yield each name with the checkpoint, or with the
        error if the manifest is unreadable, or with None if the manifest is deleted.

        None also stands for an unreadable manifest that another, readable manifest of the same
        epoch and run has replaced. `others`: more manifests that are known to be readable.
        """
        for part in _parts(names):
            yield from zip(part, self._manifests(part, others), strict=True)

    def _manifests(
        self, names: Sequence[ManifestName], others: Sequence[ManifestName]
    ) -> list[CompletedCheckpoint | Unknown | None]:
        read = in_parallel(self._manifest, names)
        attempts: dict[EpochDirectory, int] = {}
        could_be_read = [
            name
            for name, said in zip(names, read, strict=True)
            if isinstance(said, CompletedCheckpoint)
        ]
        for name in (*could_be_read, *others):
            directory = name.directory
            attempts[directory] = max(name.attempts, attempts.get(directory, 0))
        for index, name in enumerate(names):
            said = read[index]
            if isinstance(said, Unknown):
                is_replaced = attempts.get(name.directory, -1) >= name.attempts
                read[index] = None if is_replaced else self._rebuilt(name) or said
        return read

    def _manifest(self, name: ManifestName) -> CompletedCheckpoint | Unknown | None:
        return self._read(lambda: self._published.read_manifest(name))

    def _rebuilt(self, name: ManifestName) -> CompletedCheckpoint | None:
        """Rebuild a manifest from its barriers; None if the barriers are not all there."""
        barriers = [b for b in self.barriers(name.directory) if isinstance(b, Barrier)]
        for run, parallelism in {(barrier.run, barrier.parallelism) for barrier in barriers}:
            completed = align(barriers, name.epoch, run, parallelism).completed()
            if completed and sum(b.attempt for b in completed.barriers) == name.attempts:
                return completed
        return None

    def barriers(self, directory: EpochDirectory) -> list[Barrier | Unknown | None]:
        """Read each barrier of an epoch and run. The result has the error in place of an unreadable
        barrier, and None in place of a deleted barrier."""
        return in_parallel(
            lambda name: self._read(lambda: self._published.read_barrier(name)),
            self._published.barriers(directory),
        )

    def _read(self, read: Callable[[], _T]) -> _T | Unknown | None:
        try:
            return read()
        except ObjectMissingError:
            return None
        except (CorruptObjectError, UnsupportedFormatError) as error:
            tell_unreadable(error)
            return error


def _parts(names: Iterable[ManifestName]) -> Iterator[list[ManifestName]]:
    """Split the names into parts, in the order of the epochs. The manifests of a part are read in
    parallel. All manifests of an epoch are in the same part, because a manifest may have replaced
    another manifest of the epoch."""
    part: list[ManifestName] = []
    for name in sorted(names, key=attrgetter("epoch")):
        if len(part) >= _READ_AT_ONCE and name.epoch != part[-1].epoch:
            yield part
            part = []
        part.append(name)
    if part:
        yield part
