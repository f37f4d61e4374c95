"""Finds possible orphans in an operator's store, and the objects that epochs need (I8).

`deletion` defines the words. An object of cowstate under `epochs/` is needed in these cases:

    state file      a manifest names the file; or a barrier names the file, and the epoch of the
                    barrier has no manifest yet
    barrier         a manifest was written from the barrier, or the epoch has no manifest yet
    barrier group   the epoch has a manifest, or may still get a manifest
    sign of life    never, see sign_of_life

If several runs wrote an epoch, each run has its own manifests of the epoch. For a barrier or a
barrier group, only the manifests of the run that wrote the object count.

A barrier group is an object with the barriers of several subtasks, see checkpoint_completion.

All other objects of cowstate under `epochs/` are orphans. An object is taken to be as old as the
newest object of its directory. So a writer's signs of life protect all files of a directory until a
barrier names the files.

If a manifest cannot be read, and no other manifest of its epoch and run has replaced the manifest,
the barriers take the manifest's place. If the barriers are not enough, every object is needed until
retention deletes the manifest: the manifest may name any file. An unreadable barrier has the same
effect if its epoch and run has no manifest.

A run also has objects in `runs/` and `begun/`. By these objects a zombie notices that its run is
over (I9). So the sweep deletes a run's objects late: when every manifest is of a run whose number
is at least `RUNS_TO_RETAIN` greater.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import chain

from checkpoint_store import object_names
from checkpoint_store.epochs import operator_layout as layout
from checkpoint_store.epochs.completed_checkpoint import Barrier, CompletedCheckpoint
from checkpoint_store.epochs.operator_layout import BarrierName, EpochDirectory
from checkpoint_store.epochs.published_objects import PublishedObjects
from checkpoint_store.files.epoch_file_name import is_sign_of_life
from checkpoint_store.files.sign_of_life import as_young_as_newest
from checkpoint_store.objects.deletion import IsNeeded
from checkpoint_store.objects.object_info import ObjectInfo
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.operators.readable_objects import ReadableObjects, Unknown

RUNS_TO_RETAIN = 1000


class CheckpointOrphans:
    """SweptObjects for an operator's store: lists the possible orphans, and tells which objects are
    needed."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._published = PublishedObjects(store)

    def may_be_orphans(self) -> Iterable[ObjectInfo]:
        """Return all published objects that could be orphans. See SweptObjects."""
        directories = map(str, self._published.epoch_directories())
        of_runs = (object_names.RUNS, object_names.BEGUN)
        yield from chain.from_iterable(in_parallel(self._store.list, of_runs))
        for infos in in_parallel(self._store.list, directories):
            yield from as_young_as_newest(infos)

    def needed(self) -> IsNeeded:
        """Return a function of an object's name: True if an epoch needs the object."""
        return _Needs(self._published, ReadableObjects(self._published)).is_needed


class _Needs:
    """The objects needed by manifests, and by barriers of epochs without a manifest."""

    def __init__(self, published: PublishedObjects, readable: ReadableObjects) -> None:
        names = published.manifests()
        self._oldest_epoch = min((name.epoch for name in names), default=0)
        self._oldest_run = min((name.run_number for name in names), default=0)
        self._newest_run = max((name.run_number for name in names), default=0)
        # For each manifest of an epoch and run: the attempt that counts, by subtask; -1 for none.
        self._completed: dict[EpochDirectory, list[array[int]]] = {}
        self._files: set[str] = set()
        self._is_known = True
        for name, manifest in readable.manifests(names):
            if isinstance(manifest, CompletedCheckpoint):
                self._add(name.directory, manifest)
            self._is_known &= not isinstance(manifest, Unknown)
        waiting = [d for d in published.epoch_directories() if self._is_waiting(d)]
        for barrier in chain.from_iterable(in_parallel(readable.barriers, waiting)):
            if isinstance(barrier, Barrier):
                self._files |= barrier.object_names()
            self._is_known &= not isinstance(barrier, Unknown)

    def _add(self, directory: EpochDirectory, checkpoint: CompletedCheckpoint) -> None:
        self._files |= checkpoint.object_names()
        by_subtask = {barrier.subtask: barrier.attempt for barrier in checkpoint.barriers}
        subtasks = range(1 + max(by_subtask, default=-1))
        attempts = array("q", (by_subtask.get(subtask, -1) for subtask in subtasks))
        self._completed.setdefault(directory, []).append(attempts)

    def _is_waiting(self, directory: EpochDirectory) -> bool:
        """True if the epoch and run has no readable manifest, and may still be completed."""
        # A zombie is an older run that publishes an epoch before all retained epochs.
        is_old = directory.epoch < self._oldest_epoch and directory.run_number < self._newest_run
        return directory not in self._completed and not is_old

    def is_needed(self, name: str) -> bool:
        """True if a manifest or a barrier needs the object, and for objects of other programs. True
        for every object if an unreadable object leaves the needed files unknown."""
        if not self._is_known:
            return True
        if layout.parse_state_file(name):
            return name in self._files
        if entry := layout.parse_run(name) or layout.parse_begun(name):
            return entry.run.number > self._oldest_run - RUNS_TO_RETAIN
        if group := layout.parse_group(name):
            return group.directory in self._completed or self._is_waiting(group.directory)
        if is_sign_of_life(name):
            return False
        barrier = layout.parse_barrier(name)
        return barrier is None or not self._is_replaced(barrier)

    def _is_replaced(self, name: BarrierName) -> bool:
        completed = self._completed.get(name.directory)
        if completed is None:
            return not self._is_waiting(name.directory)
        return not any(
            name.subtask < len(attempts) and attempts[name.subtask] == name.attempt
            for attempts in completed
        )
