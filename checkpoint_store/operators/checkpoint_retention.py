"""Retention of the epochs of an operator, by reference (I8). `deletion` defines the words.

Retention keeps the newest `min_to_retain` epochs of the live timeline (see run_lineage). A
checkpoint that is not on the timeline is kept, too, unless its epoch is older than all of the
newest `min_to_retain` epochs. Expired objects are deleted in order: manifests, groups, barriers,
and then the state files that no retained manifest needs.

An unreadable retained manifest is rebuilt from its barriers. If the barriers are not enough, no
state file is deleted while the manifest is retained, because the manifest may need any older file.
Manifests, groups and barriers that expire meanwhile are deleted all the same, and leave orphaned
files. An expired manifest that can neither be read nor rebuilt also leaves orphaned files.

A pinned epoch and all newer epochs are retained, too; see epoch_pins.

A run that has begun, but has not completed an epoch yet, may have started from any retained epoch.
So nothing is deleted while the newest begun run is not on the timeline. The pause ends soon: the
run completes its epoch, the next run begins, or a run still alive notices the newer run.

Many manifests may name a file, and manifests expire by epoch. So for each file, only the newest
epoch of its manifests is kept in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from checkpoint_store.epochs import operator_layout as layout
from checkpoint_store.epochs.operator_layout import EpochDirectory, ManifestName
from checkpoint_store.epochs.published_objects import PublishedObjects
from checkpoint_store.objects.deletion import LEAST_TO_RETAIN, delete_in_turn
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.operators.epoch_pins import EpochPins
from checkpoint_store.operators.readable_objects import ReadableObjects, Unknown
from checkpoint_store.runs.run_errors import contradicting
from checkpoint_store.runs.run_lineage import by_epoch, lineage_of
from checkpoint_store.runs.run_starts import RunStarts


class CheckpointRetention:
    """The retention of one store. Remembers the last epoch that uses each file, so a later call
    reads only new manifests."""

    def __init__(self, store: ObjectStore, published: PublishedObjects, starts: RunStarts) -> None:
        self._store = store
        self._published = published
        self._readable = ReadableObjects(published)
        self._starts = starts
        self._pins = EpochPins(store)
        self._registered: set[ManifestName] = set()
        self._unknown: set[ManifestName] = set()
        self._last_use: dict[str, int] = {}
        self._without_barriers: set[EpochDirectory] = set()
        self._lock = threading.Lock()

    def retain(self, min_to_retain: int) -> int:
        """Delete expired objects; return the number of deleted objects."""
        assert min_to_retain >= LEAST_TO_RETAIN, "the settings allow no less"
        with self._lock:
            names = self._published.manifests()
            begun = self._starts.names()
            lineage = lineage_of(begun, (name.directory for name in names))
            if lineage.contradiction is not None:
                raise contradicting(self._store.url, lineage.contradiction)
            timeline = [*by_epoch(lineage.epochs)]
            newest_begun = max((name.run.number for name in begun), default=0)
            if len(timeline) < min_to_retain or newest_begun > lineage.newest_run:
                return 0
            oldest_retained = timeline[min_to_retain - 1].epoch
            pinned = self._pins.oldest()
            if pinned is not None:
                oldest_retained = min(oldest_retained, pinned)
            return self._delete_before(oldest_retained, names)

    def _delete_before(self, oldest_retained: int, manifests: Sequence[ManifestName]) -> int:
        expired = [name for name in manifests if name.epoch < oldest_retained]
        retained = [name for name in manifests if name.epoch >= oldest_retained]
        directories = self._directories_before(oldest_retained)
        if not expired and not directories:
            return 0
        self._register(manifests)
        self._registered.intersection_update(retained)
        self._unknown.intersection_update(retained)
        unneeded = {name for name, last in self._last_use.items() if last < oldest_retained}
        for name in unneeded:
            del self._last_use[name]
        if self._unknown:
            unneeded = set()
        listings = in_parallel(self._store.list, map(str, directories))
        names = [info.name for infos in listings for info in infos]
        groups = [name for name in names if layout.parse_group(name)]
        barriers = [name for name in names if layout.parse_barrier(name)]
        deleted = delete_in_turn(self._store, [str(name) for name in expired], groups, barriers)
        self._without_barriers.update(directories)
        return deleted + delete_in_turn(self._store, sorted(unneeded.difference(groups)))

    def _directories_before(self, oldest_retained: int) -> list[EpochDirectory]:
        directories = [d for d in self._published.epoch_directories() if d.epoch < oldest_retained]
        self._without_barriers.intersection_update(directories)
        return [d for d in directories if d not in self._without_barriers]

    def _register(self, names: Sequence[ManifestName]) -> None:
        unseen = [name for name in names if name not in self._registered]
        seen = [name for name in names if name in self._registered - self._unknown]
        for name, said in self._readable.manifests(unseen, seen):
            self._registered.add(name)
            if isinstance(said, Unknown):
                self._unknown.add(name)
            elif said is not None:
                for file in said.object_names():
                    self._last_use[file] = max(name.epoch, self._last_use.get(file, -1))
