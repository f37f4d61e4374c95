"""The live timeline: the epochs that count, of all that the runs of a query have written. Pure.

Run numbers follow the order in which runs registered, and not what Spark committed. Two drivers of
one query may both run an epoch, and Spark's commit log lets only one of them go on. So a greater
number alone says nothing. What decides are the epochs that runs have gone past:

    run 1    4  5  6  7  8    run 1 ran epoch 7, so Spark had committed its epoch 6
    run 2          6          run 2 ran epoch 6 again and never epoch 7: a stray

A run plans an epoch only after Spark has committed the epoch before it. So a run that has written
anything of a later epoch has gone past its first epoch, which was committed as this run wrote it.
So has a run that says that it has `reached` a later epoch: Spark has committed the epoch before
that one, and has maybe not planned it.
Spark commits an epoch once. The runs are looked at in the order of their numbers:

    the older runs have not gone past the run's first epoch    the run counts from there: a restart
    they have, and the run has not                             it is a stray and does not count
    both have                                                  two commit logs: a contradiction
    the run was taken back (`back`)                            it counts, later epochs do not

Whoever takes a query back, its driver at the start or `cowstate attach`, registers a run without
epochs. Other drivers may be alive, so it says how far older runs had come (`cut`). What an older
run writes after that counts as if the run had begun later, if it goes on from the base and belongs
to the same checkpoint. So does the epoch after the last committed batch, if it may have been under
way: its driver may still commit it.

A run that begins looks first whether an older run has gone past its first epoch, see
`is_overtaken`. So older runs that are past it later were alive when it began. A contradiction lasts
until the query is taken back: to an epoch that both runs have in common, or to an epoch of the run
that an operator of the query has chosen.

From the run that counts last, the timeline follows the bases of runs (I4): each run's epochs down
to its first one, then the epochs of the run that it started from.

If the last run has written its first epoch only, and older runs have the same epoch, nobody can
tell from the store which of them Spark committed: `rivals` has all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from checkpoint_store.operators.completed_checkpoint import Run
from checkpoint_store.operators.operator_layout import BegunName, EpochDirectory


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two runs that both went on from an epoch of the same query. `newer` began at
    `newer.first_epoch`, where `older_run` has reached epoch `older_epoch`."""

    older_run: int
    older_epoch: int
    newer: BegunName


@dataclass(frozen=True, slots=True)
class Lineage:
    """The live timeline.

    `epochs`: newest first. The newest epoch is there several times if the newest runs have all run
    it: then those of older runs follow the newest run's. `newest_run`: the number of the run that
    counts last, 0 if there is none. `written`: the newest epoch of which it has written anything,
    -1 if there is none; of a query that was taken back the epoch that it goes on from. `reached`:
    the same, or a later epoch that the run says it has reached. `contradiction`: None if the
    timeline is certain; otherwise the one that begins first, and `epochs` holds what all runs have
    in common.
    """

    epochs: tuple[EpochDirectory, ...]
    newest_run: int
    written: int
    reached: int
    contradiction: Contradiction | None = None

    @property
    def rivals(self) -> tuple[EpochDirectory, ...]:
        """The newest epoch of each of the runs that wrote it, newest run first; empty if only one
        run did."""
        newest = tuple(each for each in self.epochs if each.epoch == self.epochs[0].epoch)
        return newest if len(newest) > 1 else ()


def lineage_of(begun: Iterable[BegunName], written: Iterable[EpochDirectory]) -> Lineage:
    """The live timeline of the runs that have `begun`; `written`: every epoch and run of which the
    store has anything."""
    return _scan_of(begun, written).lineage()


def timeline_of(
    begun: Iterable[BegunName], written: Iterable[EpochDirectory], run_number: int
) -> tuple[EpochDirectory, ...]:
    """The epochs of a run and of the runs that it goes on from, newest first, as if this run was
    the last one that counts."""
    scan = _scan_of(begun, written)
    scan.lineage()
    return tuple(scan.chain(run_number))


def left_behind(
    begun: Iterable[BegunName], written: Iterable[EpochDirectory], read: EpochDirectory
) -> tuple[EpochDirectory, ...]:
    """The epochs up to `read` on which `read` was built, oldest first, that the live timeline does
    not have: the query went back, or Spark committed another run's epoch. Empty if `read` counts.
    """
    scan = _scan_of(begun, written)
    live = {*scan.lineage().epochs}
    led_to = [each for each in scan.chain(read.run_number) if each.epoch <= read.epoch]
    return tuple(each for each in reversed(led_to) if each not in live)


def is_overtaken(lineage: Lineage, epoch: int) -> bool:
    """Whether the timeline has gone past an epoch that another run is about to begin with."""
    return lineage.reached > epoch


def owner_of(names: Iterable[BegunName]) -> BegunName | None:
    """The newest run that told the location of its checkpoint: the store belongs to this location.
    None if no run told any."""
    told = (name for name in names if name.checkpoint is not None and name.is_start)
    return max(told, key=lambda name: name.run.number, default=None)


def has_one_checkpoint(names: Iterable[BegunName]) -> bool:
    """True if all runs since the query was last taken back or attached told the same location of
    their checkpoint. A run that told none may be of a copy."""
    starts = sorted((name for name in names if name.is_start), key=lambda name: name.run.number)
    ways_back = [index for index, name in enumerate(starts) if name.way == "back"]
    locations = {name.checkpoint for name in starts[ways_back[-1] if ways_back else 0 :]}
    return len(locations) <= 1 and None not in locations


def _scan_of(begun: Iterable[BegunName], written: Iterable[EpochDirectory]) -> _Scan:
    names = [*begun]
    starts = {name.run.number: name for name in names if name.is_start}
    return _Scan(starts, (name for name in names if not name.is_start), written)


class _Scan:
    def __init__(
        self,
        begun: Mapping[int, BegunName],
        said: Iterable[BegunName],
        written: Iterable[EpochDirectory],
    ) -> None:
        self._begun = begun
        self._epochs: dict[int, list[int]] = {}
        for directory in sorted(set(written), key=lambda each: each.epoch, reverse=True):
            self._epochs.setdefault(directory.run_number, []).append(directory.epoch)
        self._reach = {number: epochs[0] for number, epochs in self._epochs.items()}
        # Epochs that a run has cut off, by the run and the older run whose epochs they are.
        self._cuts: dict[int, dict[int, int]] = {}
        for name in said:
            number = name.run.number
            if name.way == "reached":
                self._reach[number] = max(name.first_epoch, self._reach.get(number, -1))
            elif name.base is not None:
                self._cuts.setdefault(number, {})[name.base.run_number] = name.base.epoch
        # The run that counted last before each run began to count; 0 for none.
        self._before: dict[int, int] = {}

    def lineage(self) -> Lineage:
        newest, contradiction = 0, None
        for number in sorted(self._begun.keys() | self._epochs.keys()):
            if self._was_taken_back(number):
                self._before[number] = newest
                newest, contradiction = self._gone_on(number)
                continue
            if number not in self._reach:
                continue
            if self._reached(newest) > self._first_epoch(number):
                contradiction = self._earlier(contradiction, newest, number)
            elif contradiction is None:
                self._before[number], newest = newest, number
        epochs = (*self._timeline(newest),)
        if contradiction is not None:
            first = contradiction.newer.first_epoch
            epochs = tuple(each for each in epochs if each.epoch < first)
        return Lineage(epochs, newest, self._written(newest), self._reached(newest), contradiction)

    def _gone_on(self, back: int) -> tuple[int, Contradiction | None]:
        """The run that counts last after a run that took the query back: an older run, if it was
        alive and has gone on from the base since then. Two such runs may contradict each other."""
        newest: int = back
        contradiction: Contradiction | None = None
        for number, first in sorted(self._alive_after(back)):
            if newest == back or self._reached(newest) <= first:
                newest = number
            elif self._reach[number] > first and contradiction is None:
                contradiction = self._contradiction(newest, number, first)
        return newest, contradiction

    def _alive_after(self, back: int) -> Iterator[tuple[int, int]]:
        """Older runs that went on from the base of a run which took the query back, after that,
        each with its first epoch after the base."""
        start = self._begun[back]
        cuts, base = self._cuts.get(back, {}), start.base
        if not cuts:
            return
        last = -1 if base is None else base.epoch
        for number in self._epochs.keys() - {back}:
            older = self._begun.get(number)
            is_of_checkpoint = older is None or older.checkpoint in (None, start.checkpoint)
            is_cut = cuts.get(number, last) > last
            has_later = number < back and self._epochs[number][0] > last
            has_base = base is None or base in self.chain(number)
            if has_later and is_of_checkpoint and not is_cut and has_base:
                yield number, min(each for each in self._epochs[number] if each > last)

    def _earlier(
        self, contradiction: Contradiction | None, older: int, newer: int
    ) -> Contradiction | None:
        """The contradiction that begins first: the one that was found before, or that of a run
        whose first epoch an older run is past. A run that is not past it itself is a stray."""
        first = self._first_epoch(newer)
        if self._reach[newer] <= first:
            return contradiction
        if contradiction is not None and contradiction.newer.first_epoch <= first:
            return contradiction
        return self._contradiction(older, newer, first)

    def _contradiction(self, older: int, newer: int, first: int) -> Contradiction:
        # A run whose start is lost went past its first epoch all the same.
        name = self._begun.get(newer) or BegunName(Run(newer, ""), first, None)
        return Contradiction(older, self._reached(older), replace(name, first_epoch=first))

    def _was_taken_back(self, number: int) -> bool:
        return number in self._begun and self._begun[number].way == "back"

    def _first_epoch(self, number: int) -> int:
        name = self._begun.get(number)
        return self._epochs[number][-1] if name is None else name.first_epoch

    def _reached(self, number: int) -> int:
        """The newest epoch of the timeline that ends with a run, or that the run has reached."""
        return self._reach.get(number, self._written(number))

    def _written(self, number: int) -> int:
        """The newest epoch of the timeline that ends with a run."""
        if number in self._epochs:
            return self._epochs[number][0]
        base = self._begun[number].base if number in self._begun else None
        return -1 if base is None else base.epoch

    def _timeline(self, newest: int) -> Iterator[EpochDirectory]:
        last = self.chain(newest)
        for directory in last:
            yield directory
            # A run that has gone past its first epoch has no rival there.
            first = self._first_epoch(newest)
            if directory == EpochDirectory(first, newest) and self._reached(newest) == first:
                yield from self._replaced(directory)

    def _replaced(self, directory: EpochDirectory) -> Iterator[EpochDirectory]:
        """The same epoch as the runs before wrote it, until the query was taken back or a run
        wrote an epoch before it."""
        number, epoch = directory.run_number, directory.epoch
        while number and not self._was_taken_back(number) and self._first_epoch(number) == epoch:
            older = (
                each for each in self.chain(self._before.get(number, 0)) if each.epoch == epoch
            )
            rival = next(older, None)
            if rival is None:
                return
            yield rival
            number = rival.run_number

    def chain(self, number: int) -> Iterator[EpochDirectory]:
        """The epochs of a run, and of its bases, newest first. After `lineage`."""
        until: int | None = None
        while number:
            for epoch in self._epochs.get(number, ()):
                if until is None or epoch <= until:
                    yield EpochDirectory(epoch, number)
            number, until = self._base_of(number)

    def _base_of(self, number: int) -> tuple[int, int]:
        """The run that a run started from, and its epoch. If nothing says how the run began, it
        went on from the run before it."""
        name = self._begun.get(number)
        if name is None:
            return self._before.get(number, 0), self._first_epoch(number) - 1
        if name.base is None or name.base.run_number >= number:
            return 0, -1
        return name.base.run_number, name.base.epoch


def by_epoch(epochs: Sequence[EpochDirectory]) -> Iterator[EpochDirectory]:
    """A timeline with each epoch once: the first of it that counts."""
    last: int | None = None
    for directory in epochs:
        if directory.epoch != last:
            yield directory
        last = directory.epoch
