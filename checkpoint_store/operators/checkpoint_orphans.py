"""What may be an orphan in a store of an operator, and what its epochs need (I8). See deletion.

A manifest needs its state files, and so does every published barrier of an epoch and run that has
no manifest. Groups of barriers are needed as long as their epoch and run has a manifest, or may
still get one. Everything else of ours under `epochs/` is an orphan, and signs of life always are.
Each is as old as the newest object of its directory, so all of it stays while somebody shows that
files there wait for a barrier that names them.

A manifest that cannot be read stands for what its barriers say, unless another one of its epoch and
run replaced it. If the barriers do not tell, every file of its epoch or of an older one counts as
needed, and the barriers stay. The same goes for such a barrier of an epoch and run that has no
manifest. Neither is an orphan itself: without it, the epoch would look as if it had not been.

The entry of a run, and the object that says that it has begun, tell a zombie that it is one (I9).
So they go only when every manifest is of a run that began at least `RUNS_TO_RETAIN` runs later.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain

from checkpoint_store import object_names
from checkpoint_store.files.sign_of_life import as_young_as_newest
from checkpoint_store.objects.deletion import IsNeeded
from checkpoint_store.objects.object_store import ObjectInfo, ObjectStore
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.operators import operator_layout as layout
from checkpoint_store.operators.completed_checkpoint import Barrier, CompletedCheckpoint
from checkpoint_store.operators.operator_layout import BarrierName, EpochDirectory, ManifestName
from checkpoint_store.operators.published_objects import PublishedObjects
from checkpoint_store.operators.readable_objects import ReadableObjects, Unknown

RUNS_TO_RETAIN = 1000


class CheckpointOrphans:
    """The SweptObjects of an operator's store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._published = PublishedObjects(store)

    def may_be_orphans(self) -> Iterable[ObjectInfo]:
        """See SweptObjects."""
        directories = map(str, self._published.epoch_directories())
        of_runs = (object_names.RUNS, object_names.BEGUN)
        yield from chain.from_iterable(in_parallel(self._store.list, of_runs))
        for infos in in_parallel(self._store.list, directories):
            yield from as_young_as_newest(infos)

    def needed(self) -> IsNeeded:
        """See SweptObjects."""
        return _Needs(self._published, ReadableObjects(self._published)).is_needed


class _Needs:
    """What the manifests and barriers that count need."""

    def __init__(self, published: PublishedObjects, readable: ReadableObjects) -> None:
        names = published.manifests()
        self._oldest_epoch = min((name.epoch for name in names), default=0)
        self._oldest_run = min((name.run_number for name in names), default=0)
        self._newest_run = max((name.run_number for name in names), default=0)
        # The attempts that count, by subtask, for each manifest of an epoch and run.
        self._completed: dict[EpochDirectory, list[array[int]]] = {}
        self._files: set[str] = set()
        self._unknown_epoch = -1
        self._with_manifest = {name.directory for name in names}
        self._add_manifests(readable.manifests(names))
        waiting = [d for d in published.epoch_directories() if self._is_waiting(d)]
        for barriers in in_parallel(readable.barriers, waiting):
            self._add_barriers(barriers)

    def _add_manifests(
        self, read: Iterable[tuple[ManifestName, CompletedCheckpoint | Unknown | None]]
    ) -> None:
        undecided = set()
        for name, said in read:
            if isinstance(said, Unknown):
                undecided.add(name.directory)
                self._keep_all_of(said)
            elif said is not None:
                self._add(name.directory, said)
        for directory in undecided & self._completed.keys():
            del self._completed[directory]

    def _add_barriers(self, read: Sequence[Barrier | Unknown | None]) -> None:
        for said in read:
            if isinstance(said, Unknown):
                self._keep_all_of(said)
            elif said is not None:
                self._files |= said.object_names()

    def _keep_all_of(self, unknown: Unknown) -> None:
        self._unknown_epoch = max(self._unknown_epoch, unknown.epoch)

    def _add(self, directory: EpochDirectory, checkpoint: CompletedCheckpoint) -> None:
        self._files |= checkpoint.object_names()
        by_subtask = {barrier.subtask: barrier.attempt for barrier in checkpoint.barriers}
        subtasks = range(1 + max(by_subtask, default=-1))
        attempts = array("q", (by_subtask.get(subtask, -1) for subtask in subtasks))
        self._completed.setdefault(directory, []).append(attempts)

    def _is_behind(self, directory: EpochDirectory) -> bool:
        """Whether this is of a zombie that publishes behind the retained epochs."""
        return directory.epoch < self._oldest_epoch and directory.run_number < self._newest_run

    def _is_waiting(self, directory: EpochDirectory) -> bool:
        """Whether this epoch may still be completed: what it has for manifests cannot be read."""
        return directory not in self._completed and not self._is_behind(directory)

    def is_needed(self, name: str) -> bool:
        """Whether something that counts needs this object. What is not ours stays, too."""
        if directory := layout.parse_state_file(name):
            return name in self._files or directory.epoch <= self._unknown_epoch
        if entry := layout.parse_run(name) or layout.parse_begun(name):
            return entry.run.number > self._oldest_run - RUNS_TO_RETAIN
        if group := layout.parse_group(name):
            # One that cannot be read may stand for others; retention deletes them all.
            return group.directory in self._with_manifest or self._is_waiting(group.directory)
        if layout.is_sign_of_life(name):
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
