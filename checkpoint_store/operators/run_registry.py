"""The runs of a query, in one order that all of its hosts agree on.

Every host of a run registers it, and each has to get the same number, greater than that of every
run that was registered before. Hosts come and stop at any time, so none can wait for another, and
not every store refuses a name that is taken. So they agree by marks, which are only ever added:

    a mark   "on level l, number n is for run r": an object whose name says so (see RunName)
    a look   listings until one shows only what was known before it began: this one shows exactly
             what was there when it began

A host looks and does the first of these that applies, until it has its number:

    1  a number below the greatest has its run on its top level: that is its number
    2  there is no mark: it marks the first number that is free, level 1 for its run
    3  the two top levels of the greatest number are for one run only, so the number is that run's:
       if this is its own it is done, otherwise it marks the next number that is free, level 1 for
       its own
    4  it marks the next level of the greatest number for the least run on the top level

One number has one run. Say a look found run r alone on levels k - 1 and k of a number, k the top.
Then no other run is ever marked on level k or above. Only rule 4 marks such a level, for a run that
a look of its host showed on the level below, which was then the top. If that look was after the
first one, the level below is k or above, and only r is there. If it was before, the level below is
k - 1 or k, and what it showed there is part of what the first look showed: r. So every later look
gives the number to r, or leads to more marks for r; and r stays alone on the top level (rule 1).

One run has one number. A host marks the next number only once it knows that another run has this
one, so nobody asks for a number for a run that has one.

The order is that of time. Whoever begins to register after a run was registered finds that run's
number taken, and gets a greater one. If several register at the same moment, any may be first.

It ends. A host that nobody crosses needs two marks. Hosts that look at the same things mark the
same run, so a contested number is decided at its third level; only a host whose look is outdated
when it marks, again and again, makes it take longer.

A number is taken, also without a mark, if something in the store was written under it: by a run
whose marks were lost. A run writes after it was registered, so for the hosts of one run that is the
same: whatever was written since has marks.

Releases before marks had levels wrote level 1 only, and their runs might share a number: rule 1
finds such runs where they are, and rule 4 settles the greatest number before it is passed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from checkpoint_store import object_names
from checkpoint_store.objects.created_once import put_if_absent
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.operators import operator_layout as layout
from checkpoint_store.operators.checkpoint_codec import encode_run
from checkpoint_store.operators.completed_checkpoint import Run
from checkpoint_store.operators.operator_layout import RunName


@dataclass(frozen=True, slots=True)
class Mark:
    """Says on one level that the run's number is for this run."""

    run: Run
    level: int


def next_step(marks: Iterable[Mark], run_id: str, written: int = 0) -> Run | Mark:
    """What a host of `run_id` does after a look that showed `marks`: it has its number, or it makes
    a mark. `written`: the greatest number that something was written under. Pure."""
    numbers: dict[int, dict[int, set[str]]] = {}
    for mark in marks:
        levels = numbers.setdefault(mark.run.number, {})
        levels.setdefault(mark.level, set()).add(mark.run.run_id)
    if not numbers:
        return Mark(Run(written + 1, run_id), 1)
    greatest = max(numbers)
    for number in sorted(numbers.keys() - {greatest}):
        if run_id in numbers[number][max(numbers[number])]:
            return Run(number, run_id)
    levels = numbers[greatest]
    top = max(levels)
    leader = min(levels[top])
    if not levels[top] == levels.get(top - 1) == {leader}:
        return Mark(Run(greatest, leader), top + 1)
    if leader == run_id:
        return Run(greatest, run_id)
    return Mark(Run(max(greatest, written) + 1, run_id), 1)


class RunRegistry:
    """The runs of `store`. Safe to use from several threads and processes.

    `written` finds the greatest number that something was written under, None if nothing can be.
    Only a caller that marks a new number asks for it.
    """

    def __init__(self, store: ObjectStore, written: Callable[[], int] | None = None) -> None:
        self._store = store
        self._written = written

    def register(self, run_id: str) -> Run:
        """The run of this id, the same for every caller, later than all runs registered before, and
        later than the greatest number that something was written under."""
        seen_names: set[RunName] = set()
        written_number: int | None = None
        while True:
            shown = set(self._names())
            if not shown <= seen_names:
                seen_names |= shown
                continue
            marks = {Mark(name.run, name.level) for name in shown}
            step = next_step(marks, run_id, written_number or 0)
            is_new = isinstance(step, Mark) and step.level == 1
            if is_new and self._written is not None and written_number is None:
                # To find it takes a while, in which other hosts may have made marks: look again.
                written_number = self._written()
                continue
            if isinstance(step, Run):
                return step
            name = RunName(step.run, _unique(step), step.level)
            put_if_absent(self._store, str(name), encode_run(step.run))
            seen_names.add(name)

    def registered(self, run_id: str) -> Run | None:
        """The run of this id if it has its number, else None: one listing."""
        step = next_step({Mark(name.run, name.level) for name in self._names()}, run_id)
        return step if isinstance(step, Run) else None

    def all(self) -> set[Run]:
        """All runs that have a mark, of which one that is being registered may have several."""
        return {name.run for name in self._names()}

    def _names(self) -> list[RunName]:
        names = (layout.parse_run(info.name) for info in self._store.list(object_names.RUNS))
        return [name for name in names if name is not None]


def _unique(mark: Mark) -> str:
    """All hosts that make a mark write the same object. Ten thousand of them may begin at once, and
    each of them looks at all marks."""
    text = f"{mark.run.number}/{mark.run.run_id}/{mark.level}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]
