"""What published objects say, for a clean-up that goes on where one of them cannot be read.

An object that is damaged, or that a newer release wrote, is passed over and told once. A manifest
that cannot be read says what its barriers say, if they are those that it was written from: the sum
of their attempts is part of its name. Otherwise what it names is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar

from checkpoint_store.errors import (
    CorruptObjectError,
    ObjectMissingError,
    UnsupportedFormatError,
)
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.objects.passed_over import tell_unreadable
from checkpoint_store.operators.barrier_alignment import align
from checkpoint_store.operators.completed_checkpoint import Barrier, CompletedCheckpoint
from checkpoint_store.operators.operator_layout import EpochDirectory, ManifestName
from checkpoint_store.operators.published_objects import PublishedObjects

_T = TypeVar("_T")
# So many manifests are in memory at a time, or those of one epoch if they are more.
_READ_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Unknown:
    """An object that cannot be read may name any file of its epoch or of an older one (I8)."""

    epoch: int


class ReadableObjects:
    """The published objects of a store. Safe to use from several threads."""

    def __init__(self, published: PublishedObjects) -> None:
        self._published = published

    def manifests(
        self, names: Iterable[ManifestName], others: Sequence[ManifestName] = ()
    ) -> Iterator[tuple[ManifestName, CompletedCheckpoint | Unknown | None]]:
        """What each manifest says, a few epochs at a time. It is None for a manifest that was
        deleted, and for one that cannot be read and was replaced: by another manifest of its epoch
        and run, among `names` or `others`, that can be read."""
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

        def settle(
            name: ManifestName, said: CompletedCheckpoint | Unknown | None
        ) -> CompletedCheckpoint | Unknown | None:
            if not isinstance(said, Unknown):
                return said
            is_replaced = attempts.get(name.directory, -1) >= name.attempts
            return None if is_replaced else self._rebuilt(name) or said

        return [settle(name, said) for name, said in zip(names, read, strict=True)]

    def _manifest(self, name: ManifestName) -> CompletedCheckpoint | Unknown | None:
        return self._read(lambda: self._published.read_manifest(name), name.epoch)

    def _rebuilt(self, name: ManifestName) -> CompletedCheckpoint | None:
        """What a manifest says according to its barriers; None if they are not all there."""
        barriers = [b for b in self.barriers(name.directory) if isinstance(b, Barrier)]
        for run, parallelism in {(barrier.run, barrier.parallelism) for barrier in barriers}:
            completed = align(barriers, name.epoch, run, parallelism).completed()
            if completed and sum(b.attempt for b in completed.barriers) == name.attempts:
                return completed
        return None

    def barriers(self, directory: EpochDirectory) -> list[Barrier | Unknown | None]:
        """What each barrier of an epoch and run says; None for a barrier that was deleted."""
        return in_parallel(
            lambda name: self._read(lambda: self._published.read_barrier(name), directory.epoch),
            self._published.barriers(directory),
        )

    def _read(self, read: Callable[[], _T], epoch: int) -> _T | Unknown | None:
        try:
            return read()
        except ObjectMissingError:
            return None
        except (CorruptObjectError, UnsupportedFormatError) as error:
            tell_unreadable(error)
            return Unknown(epoch)


def _parts(names: Iterable[ManifestName]) -> Iterator[list[ManifestName]]:
    """The names by epoch, those of one together: one of them may have replaced another."""
    part: list[ManifestName] = []
    for name in sorted(names, key=attrgetter("epoch")):
        if len(part) >= _READ_AT_ONCE and name.epoch != part[-1].epoch:
            yield part
            part = []
        part.append(name)
    if part:
        yield part
