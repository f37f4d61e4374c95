"""Deleting old checkpoints by reference (I8).

The live timeline is the newest run's epochs, preceded by those epochs of older runs that it was
built upon: after a rollback to an older Spark checkpoint, the later epochs of the older run are not
on it. The newest `min_epochs` epochs of the timeline are retained, and with them every checkpoint
that is not older. Of what is older, manifests go first, then barriers, then the state files that no
remaining manifest names: whoever is stopped half way leaves orphans, never a named file missing.

A registered run that has completed nothing yet may be starting from any retained epoch, so while
the newest run has no manifest nothing is deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from checkpoint_store import checkpoint_layout as layout
from checkpoint_store.checkpoint_layout import EpochDirectory, ManifestName
from checkpoint_store.errors import CorruptObjectError, ObjectMissingError
from checkpoint_store.object_store import ObjectStore
from checkpoint_store.published_objects import PublishedObjects, in_parallel
from checkpoint_store.shared_state_registry import SharedStateRegistry


def live_timeline(manifests: Iterable[ManifestName]) -> list[ManifestName]:
    """One manifest per epoch of the live timeline, newest first. Pure."""
    timeline: list[ManifestName] = []
    for name in sorted(manifests, key=_age, reverse=True):
        if not timeline or name.epoch < timeline[-1].epoch:
            timeline.append(name)
    return timeline


class CheckpointRetention:
    """Retention of one store. Remembers which files each manifest names, so that a later call
    reads only the manifests it has not seen."""

    def __init__(self, store: ObjectStore, published: PublishedObjects) -> None:
        self._store = store
        self._published = published
        self._registry = SharedStateRegistry()
        self._without_barriers: set[EpochDirectory] = set()
        self._lock = threading.Lock()

    def retain(self, min_epochs: int) -> int:
        """Keep the newest `min_epochs` epochs; the number of objects deleted.

        Raises CorruptObjectError when a retained manifest cannot be read: what it names is unknown,
        so nothing is deleted.
        """
        if min_epochs < 2:
            raise ValueError(f"minEpochsToRetain is {min_epochs}; it must be at least 2")
        with self._lock:
            manifests = self._published.manifests()
            timeline = live_timeline(manifests)
            if len(timeline) < min_epochs or self._newest_run() > timeline[0].run_number:
                return 0
            return self._delete_before(timeline[min_epochs - 1].epoch, manifests)

    def _newest_run(self) -> int:
        names = (layout.parse_run(info.name) for info in self._store.list(layout.RUNS))
        return max((name.run.number for name in names if name), default=0)

    def _delete_before(self, oldest: int, manifests: Sequence[ManifestName]) -> int:
        expired = [name for name in manifests if name.epoch < oldest]
        retained = [name for name in manifests if name.epoch >= oldest]
        directories = self._directories_before(oldest)
        if not expired and not directories:
            return 0
        self._register(retained, self._files_of)
        self._register(expired, self._files_if_readable)
        # A manifest that another process deleted meanwhile releases what it named, too.
        gone = self._registry.checkpoints() - {str(name) for name in retained}
        files = {file for manifest in gone for file in self._registry.unregister(manifest)}
        listings = in_parallel(self._published.barriers, directories)
        barriers = [barrier for listing in listings for barrier in listing]
        self._delete([str(name) for name in expired])
        self._delete([str(name) for name in barriers])
        self._without_barriers.update(directories)
        self._delete(sorted(files))
        return len(expired) + len(barriers) + len(files)

    def _directories_before(self, oldest: int) -> list[EpochDirectory]:
        """Directories of older epochs that may hold barriers."""
        directories = [d for d in self._published.epoch_directories() if d.epoch < oldest]
        self._without_barriers.intersection_update(directories)
        return [d for d in directories if d not in self._without_barriers]

    def _register(
        self, names: Iterable[ManifestName], files_of: Callable[[ManifestName], frozenset[str]]
    ) -> None:
        unseen = [name for name in names if str(name) not in self._registry]
        for name, files in zip(unseen, in_parallel(files_of, unseen), strict=True):
            self._registry.register(str(name), files)

    def _files_of(self, name: ManifestName) -> frozenset[str]:
        return self._published.read_manifest(name).object_names()

    def _files_if_readable(self, name: ManifestName) -> frozenset[str]:
        # Files that only a damaged manifest named become orphans, for the orphan sweep.
        try:
            return self._files_of(name)
        except (CorruptObjectError, ObjectMissingError):
            return frozenset()

    def _delete(self, names: Sequence[str]) -> None:
        if names:
            self._store.delete(names)


def _age(name: ManifestName) -> tuple[int, int, int, str]:
    return name.run_number, name.epoch, name.attempts, name.unique
