"""Deleting what nothing names: left by killed writers, zombies and replaced attempts (I8).

Referenced are the state files of every manifest, and of every published barrier of an epoch and run
that has no manifest. Everything else of ours under `epochs/`, and what was never published, are
orphans, and are deleted once they are older than the grace period, which must exceed the time that
any writer takes from its first file to its barrier. An object of unknown age is kept. A damaged
barrier or manifest is none: without it, the epoch would look as if it had not been.

The entry of a run tells a zombie that it is one (I9), so it goes only when every manifest is of a
run that began at least `RUNS_TO_RETAIN` runs later.
"""

from __future__ import annotations

from checkpoint_store import checkpoint_layout as layout
from checkpoint_store.checkpoint_layout import BarrierName, EpochDirectory
from checkpoint_store.completed_checkpoint import CompletedCheckpoint
from checkpoint_store.object_store import UNPUBLISHED, ObjectInfo, ObjectStore
from checkpoint_store.published_objects import PublishedObjects, in_parallel

RUNS_TO_RETAIN = 1000


def sweep_orphans(store: ObjectStore, grace_seconds: float, now: float) -> list[str]:
    """Delete orphans last modified before `now - grace_seconds` (in seconds since 1970); their
    names. Reads every manifest, so it is not for the hot path."""
    published = PublishedObjects(store)
    # What is old is listed before what is named: a file that is named meanwhile is not missed.
    directories = published.epoch_directories()
    listings = in_parallel(store.list, [*map(str, directories), layout.RUNS, UNPUBLISHED])
    old = [
        info
        for listing in listings
        for info in listing
        if info.modified is not None and now - info.modified > grace_seconds
    ]
    references = _References(published)
    orphans = sorted(info.name for info in old if references.is_orphan(info))
    if orphans:
        store.delete(orphans)
    return orphans


class _References:
    """What is named by the manifests and barriers that count."""

    def __init__(self, published: PublishedObjects) -> None:
        names = published.manifests()
        self._completed: dict[EpochDirectory, set[tuple[int, int]]] = {}
        self._files: set[str] = set()
        checkpoints = in_parallel(published.read_manifest, names)
        for name, checkpoint in zip(names, checkpoints, strict=True):
            self._add(EpochDirectory(name.epoch, name.run_number), checkpoint)
        self._oldest_epoch = min((name.epoch for name in names), default=0)
        self._oldest_run = min((name.run_number for name in names), default=0)
        self._newest_run = max((name.run_number for name in names), default=0)
        waiting = [d for d in published.epoch_directories() if self._is_waiting(d)]
        for barriers in in_parallel(published.barriers, waiting):
            for barrier in published.read_barriers(barriers):
                self._files.update(handle.name for handle in barrier.handles)

    def _add(self, directory: EpochDirectory, checkpoint: CompletedCheckpoint) -> None:
        self._files |= checkpoint.object_names()
        attempts = self._completed.setdefault(directory, set())
        attempts.update((barrier.subtask, barrier.attempt) for barrier in checkpoint.barriers)

    def _is_waiting(self, directory: EpochDirectory) -> bool:
        """Whether this epoch may still be completed: it has no manifest, and is not a zombie's
        that publishes behind the retained epochs."""
        behind = directory.epoch < self._oldest_epoch and directory.run_number < self._newest_run
        return directory not in self._completed and not behind

    def is_orphan(self, info: ObjectInfo) -> bool:
        """Whether nothing that counts names this object. What is not ours is not an orphan."""
        if layout.parse_state_file(info.name):
            return info.name not in self._files
        if entry := layout.parse_run(info.name):
            return entry.run.number <= self._oldest_run - RUNS_TO_RETAIN
        if barrier := layout.parse_barrier(info.name):
            return self._is_replaced(barrier)
        return info.name.startswith(f"{UNPUBLISHED}/")

    def _is_replaced(self, name: BarrierName) -> bool:
        attempts = self._completed.get(name.directory)
        if attempts is None:
            return not self._is_waiting(name.directory)
        return (name.subtask, name.attempt) not in attempts
