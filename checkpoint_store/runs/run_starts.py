"""The starts of runs: each run writes its start once, and readers of the timeline list the starts.

A run writes its start before its first barrier. Every host of the run would write the same start,
because all hosts start the run's first epoch from the same base. So the hosts share the object's
name.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from math import inf

from checkpoint_store import object_names
from checkpoint_store.epochs import operator_layout as layout
from checkpoint_store.epochs.checkpoint_codec import encode_begun
from checkpoint_store.epochs.completed_checkpoint import Barrier, Run
from checkpoint_store.epochs.operator_layout import BegunName, EpochDirectory, Way
from checkpoint_store.objects.named_object import list_named, put_if_absent
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.runs.checkpoint_location import digest_of, location_of, owner_of
from checkpoint_store.runs.run_errors import RunOverError, StoreOfOtherCheckpointError

_SECONDS_BETWEEN_LISTINGS = 60.0


def began_before(epoch: int, names: Iterable[BegunName], run: Run) -> bool:
    """True if the names show that `run` began with an epoch before `epoch`."""
    return any(name.run == run and name.first_epoch < epoch for name in names)


class RunStarts:
    """The objects under `begun/` of a store. Safe to use from several threads and processes."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._checkpoints: dict[Run, str] = {}
        self._listed: list[BegunName] = []
        self._listed_at = -inf
        self._begun: set[Run] = set()

    def names(self) -> list[BegunName]:
        """The names of all objects under `begun/`. Costs one listing."""
        return [*list_named(self._store, object_names.BEGUN, layout.parse_begun)]

    def names_of(self, numbers: Iterable[int]) -> list[BegunName]:
        """The names under `begun/`, from the last listing if possible. `numbers`: the runs of which
        the caller has seen epochs. Lists again if the last listing lacks one of these runs, or is
        older than a minute, because a run that took the query back may have no epoch yet. Newer
        objects of known runs may be missing; `listed_anew` finds all objects."""
        is_old = time.monotonic() - self._listed_at >= _SECONDS_BETWEEN_LISTINGS
        if is_old or not set(numbers) <= {name.run.number for name in self._listed}:
            return self.listed_anew()
        return self._listed

    def listed_anew(self) -> list[BegunName]:
        """List the names under `begun/` now, however young the last listing is."""
        self._listed, self._listed_at = self.names(), time.monotonic()
        return self._listed

    def note_checkpoint(self, run: Run, checkpoint: str) -> None:
        """Note the location of the query's checkpoint, as the driver of a run told it. `begin`
        writes the location."""
        self._checkpoints[run] = checkpoint

    def noted_checkpoint(self, run: Run) -> str | None:
        """The location noted for a run, None if the run's driver told no location."""
        return self._checkpoints.get(run)

    def begin(self, barrier: Barrier) -> None:
        """Write how the run of a barrier began, before the barrier is published. Does nothing if a
        host of the run has already written the start."""
        run = barrier.run
        if run in self._begun:
            return
        prefix = layout.begun_prefix(run.number)
        names = list_named(self._store, object_names.BEGUN, layout.parse_begun, prefix)
        if not any(name.run == run for name in names):
            base = None
            if barrier.base_epoch is not None and barrier.base_run is not None:
                base = EpochDirectory(barrier.base_epoch, barrier.base_run)
            self.write(run, barrier.epoch, base, self.noted_checkpoint(run))
        self._begun.add(run)

    def write(
        self,
        run: Run,
        first_epoch: int,
        base: EpochDirectory | None,
        checkpoint: str | None,
        way: Way = "forward",
    ) -> None:
        """Write that a run begins with `first_epoch`, from `base`. `way`: see BegunName."""
        name = BegunName(
            run=run,
            first_epoch=first_epoch,
            base=base,
            way=way,
            checkpoint=None if checkpoint is None else digest_of(checkpoint),
        )
        put_if_absent(self._store, str(name), encode_begun(run, checkpoint))

    def write_cuts(self, run: Run, first_epoch: int, cuts: Iterable[EpochDirectory]) -> None:
        """Write which epochs of older runs a run takes back. Call `write_cuts` before `write` says
        that the run takes the query back. `first_epoch`: the epoch with which the query goes on.
        `cuts`: older runs, each with the last epoch taken back."""
        for cut in cuts:
            name = BegunName(run, first_epoch, cut, "cut")
            put_if_absent(self._store, str(name), encode_begun(run, None))

    def note_reached(self, run_id: str, epoch: int) -> None:
        """Note that a run has reached `epoch`: Spark has committed all earlier epochs of the run.
        Does nothing if the run has not begun, or if the run begins with `epoch`."""
        for name in self.names():
            if name.run.run_id == run_id and name.is_start and name.first_epoch < epoch:
                reached = replace(name, way="reached", first_epoch=epoch)
                put_if_absent(self._store, str(reached), encode_begun(name.run, None))

    def check_newest(self, run: Run) -> None:
        """Raise RunOverError if a later run has begun (I9). Costs one listing."""
        self.check_newest_of(self.names(), run)

    def check_newest_of(self, names: Iterable[BegunName], run: Run) -> None:
        """Raise RunOverError if a later run has begun (I9). `names`: the names under `begun/`, from
        an earlier listing."""
        newest = max(names, key=lambda name: name.run.number, default=None)
        if newest is not None and newest.run.number > run.number:
            number, epoch = newest.run.number, newest.first_epoch
            raise RunOverError(self._store.url, run, number, epoch)

    def check_checkpoint(self, checkpoint: str) -> None:
        """Raise StoreOfOtherCheckpointError if the store belongs to another location than
        `checkpoint`. Costs one listing, and a read if the locations differ."""
        owner = owner_of(self.names())
        if owner is not None and owner.checkpoint != digest_of(checkpoint):
            location = location_of(self._store, owner)
            raise StoreOfOtherCheckpointError(self._store.url, location, checkpoint)
