"""The live timeline: the epochs that count, among all epochs written by a query's runs. Pure.

Run numbers follow the order in which runs registered, not the order in which Spark committed. Two
drivers of one query may both run an epoch, and Spark's commit log lets only one driver go on. So a
greater number alone proves nothing. The epochs that runs have gone past decide:

    run 1    4  5  6  7  8    run 1 ran epoch 7, so Spark had committed run 1's epoch 6
    run 2          6          run 2 ran epoch 6 again and never epoch 7: a stray

A run plans an epoch only after Spark has committed the epoch before. So a run has gone past its
first epoch if the run has written any object of a later epoch: Spark committed the first epoch as
the run wrote it. A run has also gone past its first epoch if the run has a `reached` note about a
later epoch: Spark has committed the epoch before the reached epoch, but may not have planned the
reached epoch.

Spark commits an epoch once. The runs are examined in the order of their numbers. The first case
that fits decides whether a run counts:

- The run took the query back (`back`). The run counts, and later epochs of older runs do not.
- No older run has gone past the run's first epoch: a restart. The run counts from its first epoch
  on.
- An older run has gone past this epoch, but the run itself has not: a stray. The run does not
  count.
- An older run and the run itself have gone past this epoch: two commit logs, a contradiction.

A query is taken back by its driver at the start of the query, or by `cowstate attach`. Both
register a new run, which has no epochs yet. Drivers of older runs may still be alive, so the new
run also notes how far each older run had come (`cut`). If an older run writes epochs after its cut,
these epochs count as if the older run had begun after the new run. This holds only if the older run
goes on from the base, and belongs to the same checkpoint. The epoch after the last committed batch
is not cut if the epoch may have been under way, because a driver may still commit the epoch.

At its start, a run checks that no older run has gone past the new run's first epoch, see
epoch_bases. So an older run that goes past this epoch afterwards was still alive when the new run
began. A contradiction lasts until the query is taken back: to an epoch that both
runs have in common, or to an epoch of a run chosen by the user.

The timeline starts with the run that counts last and follows the bases of runs (I4): the epochs of
a run down to its first epoch, then the epochs of the run that wrote its base.

If the last run has written only its first epoch, and older runs have the same epoch, the store
cannot tell which run's epoch Spark committed. `rivals` lists the epoch of each of these runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.epochs.operator_layout import BegunName, EpochDirectory


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two runs of the same query that both went on from the same epoch. `newer` began at
    `newer.first_epoch`, and `older_run` is past this epoch."""

    older_run: int
    newer: BegunName


@dataclass(frozen=True, slots=True)
class RunLineage:
    """The live timeline.

    - `epochs`: the epochs, newest first. If several of the newest runs have run the newest epoch,
      the epoch is listed once for each of these runs, the newest run first.
    - `newest_run`: the number of the run that counts last; 0 if there is no run.
    - `written`: the newest epoch of which `newest_run` has written an object; the base if the run
      took the query back and has written nothing yet; -1 if there is no epoch.
    - `reached`: the epoch in the run's `reached` note if it is later than `written`; otherwise
      `written`.
    - `contradiction`: the first contradiction between runs; None if the timeline is certain. With a
      contradiction, `epochs` lists only the epochs common to all runs.
    """

    epochs: tuple[EpochDirectory, ...]
    newest_run: int
    written: int
    reached: int
    contradiction: Contradiction | None = None

    @property
    def rivals(self) -> tuple[EpochDirectory, ...]:
        """The newest epoch, once per run with the epoch, newest run first; empty if a single run
        wrote the epoch."""
        newest = tuple(each for each in self.epochs if each.epoch == self.epochs[0].epoch)
        return newest if len(newest) > 1 else ()


def lineage_of(begun: Iterable[BegunName], written: Iterable[EpochDirectory]) -> RunLineage:
    """Find the live timeline. `begun`: the starts of runs; `written`: every epoch and run of which
    the store has any object."""
    return _scan_of(begun, written).lineage()


def timeline_of(
    begun: Iterable[BegunName], written: Iterable[EpochDirectory], run_number: int
) -> tuple[EpochDirectory, ...]:
    """The epochs of a run and of its bases, newest first, as if the run counted last."""
    scan = _scan_of(begun, written)
    scan.lineage()
    return tuple(scan.chain(run_number))


def left_behind(
    begun: Iterable[BegunName], written: Iterable[EpochDirectory], read: EpochDirectory
) -> tuple[EpochDirectory, ...]:
    """The epochs up to `read` that the live timeline no longer has, oldest first; empty if `read`
    is on the live timeline.

    The epochs up to `read` are `read` itself, its base, the base of its base, and so on. The live
    timeline lacks some of these epochs if the query was taken back, or if Spark committed the same
    epoch of another run.
    """
    scan = _scan_of(begun, written)
    live = {*scan.lineage().epochs}
    led_to = [each for each in scan.chain(read.run_number) if each.epoch <= read.epoch]
    return tuple(each for each in reversed(led_to) if each not in live)


def reached_by_run(begun: Iterable[BegunName]) -> dict[int, int]:
    """For each run number with `reached` notes, the latest epoch that the notes name. A store may
    list the notes in any order."""
    reached: dict[int, int] = {}
    for name in begun:
        if name.way == "reached":
            reached[name.run.number] = max(name.first_epoch, reached.get(name.run.number, -1))
    return reached


def _scan_of(begun: Iterable[BegunName], written: Iterable[EpochDirectory]) -> _Scan:
    names = [*begun]
    starts = {name.run.number: name for name in names if name.is_start}
    return _Scan(starts, [name for name in names if not name.is_start], written)


class _Scan:
    def __init__(
        self,
        begun: Mapping[int, BegunName],
        said: Sequence[BegunName],
        written: Iterable[EpochDirectory],
    ) -> None:
        self._begun = begun
        self._epochs: dict[int, list[int]] = {}
        for directory in sorted(set(written), key=lambda each: each.epoch, reverse=True):
            self._epochs.setdefault(directory.run_number, []).append(directory.epoch)
        self._reach = {number: epochs[0] for number, epochs in self._epochs.items()}
        for number, epoch in reached_by_run(said).items():
            self._reach[number] = max(epoch, self._reach.get(number, -1))
        # By run and older run: the last epoch of the older run that the run has cut off.
        self._cuts: dict[int, dict[int, int]] = {}
        for name in said:
            if name.way == "cut" and name.base is not None:
                of_run = self._cuts.setdefault(name.run.number, {})
                of_run[name.base.run_number] = name.base.epoch
        # By run: the run that counted last before the run began to count; 0 for none.
        self._before: dict[int, int] = {}

    def lineage(self) -> RunLineage:
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
        return RunLineage(
            epochs, newest, self._written(newest), self._reached(newest), contradiction
        )

    def _gone_on(self, back: int) -> tuple[int, Contradiction | None]:
        """The last run that counts after run `back` took the query back, and the first
        contradiction found. The last run is `back`, unless an older run was still alive and has
        gone on from the base of `back`. Two such older runs may contradict each other."""
        newest: int = back
        contradiction: Contradiction | None = None
        for number, first in sorted(self._alive_after(back)):
            if newest == back or self._reached(newest) <= first:
                newest = number
            elif self._reach[number] > first and contradiction is None:
                contradiction = self._contradiction(newest, number, first)
        return newest, contradiction

    def _alive_after(self, back: int) -> Iterator[tuple[int, int]]:
        """The older runs that went on from the base after run `back` took the query back to the
        base. Yields each run with its first epoch after the base."""
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
        """Compare run `newer` with run `older`, which is past the first epoch of `newer`. If
        `newer` is past its first epoch, too, the runs contradict each other; otherwise `newer` is a
        stray. Return the earlier contradiction: this contradiction or `contradiction`."""
        first = self._first_epoch(newer)
        if self._reach[newer] <= first:
            return contradiction
        if contradiction is not None and contradiction.newer.first_epoch <= first:
            return contradiction
        return self._contradiction(older, newer, first)

    def _contradiction(self, older: int, newer: int, first: int) -> Contradiction:
        # Even if its start is lost, the run has gone past its first epoch.
        name = self._begun.get(newer) or BegunName(Run(newer, ""), first, None)
        return Contradiction(older, replace(name, first_epoch=first))

    def _was_taken_back(self, number: int) -> bool:
        return number in self._begun and self._begun[number].way == "back"

    def _first_epoch(self, number: int) -> int:
        name = self._begun.get(number)
        return self._epochs[number][-1] if name is None else name.first_epoch

    def _reached(self, number: int) -> int:
        """The epoch that a run has reached: the epoch in the run's `reached` note, or the newest
        written epoch if the run has no later note."""
        return self._reach.get(number, self._written(number))

    def _written(self, number: int) -> int:
        """The newest epoch that a run has written. If the run has written no epoch: the run's base;
        -1 without a base."""
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
        """Yield the epoch of `directory` once for each earlier run that wrote the epoch, the newest
        run first. Stops at a run that took the query back, and at a run with an earlier first
        epoch."""
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
        """The epochs of a run and of its bases, newest first. Call `lineage` first."""
        until: int | None = None
        while number:
            for epoch in self._epochs.get(number, ()):
                if until is None or epoch <= until:
                    yield EpochDirectory(epoch, number)
            number, until = self._base_of(number)

    def _base_of(self, number: int) -> tuple[int, int]:
        """The run and the epoch that a run started from. If the run's start is unknown, the run is
        taken to have gone on from the run before."""
        name = self._begun.get(number)
        if name is None:
            return self._before.get(number, 0), self._first_epoch(number) - 1
        if name.base is None or name.base.run_number >= number:
            return 0, -1
        return name.base.run_number, name.base.epoch


def by_epoch(epochs: Sequence[EpochDirectory]) -> Iterator[EpochDirectory]:
    """Yield each epoch of a timeline once: the first entry of an epoch counts."""
    last: int | None = None
    for directory in epochs:
        if directory.epoch != last:
            yield directory
        last = directory.epoch
