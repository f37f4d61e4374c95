"""The registry of a query's runs: gives each run a number, the same for all hosts.

Every host of a run registers the run. All hosts of the run must get the same number, and the number
must be greater than the number of every run registered before. Hosts come and stop at any time, so
no host can wait for another host. Not every store refuses a taken name. So hosts agree by marks,
and a host only ever adds marks:

    a mark   "on level l, number n is for run r": an object whose name says so (see RunMark)
    a look   listings, until a listing shows only marks known before the listing began:
             the last listing shows exactly the marks that were there when the listing began

A host looks and applies the first rule that fits, until the host has its number:

    1  the host's run is on the top level of a number below the greatest: the number is the run's
    2  there is no mark: the host marks the first free number, level 1, for its run
    3  the two top levels of the greatest number are for a single run: that run has the number.
       If the run is the host's, the host is done. If not, the host marks the next free number,
       level 1, for its run
    4  otherwise: the host marks the next level of the greatest number, for the least run on the
       top level

One number has one run. Suppose that a look A found only run r on levels k - 1 and k of a number,
and that k was the top level. Then no other run is ever marked on level k or above. Only rule 4
marks these levels: a host makes a look B, takes a run from the top level of look B, and marks this
run on the next level. The taken run is r in both cases:

- B came after A. The top level of B is k or above, and only r is there.
- B came before A. The top level of B is k - 1 or k. A found all marks that B found, and A found
  only r on these levels.

So every later look gives the number to r, or leads to more marks for r; and r stays alone on the
top level (rule 1).

One run has one number. A host marks the next number only when the host knows that another run has
the greatest number. So no host asks for a second number for a run that has a number.

The order is the order of time. If a run was registered before a host begins to register another
run, the host finds the first run's number taken and gets a greater number. If several runs register
at the same moment, any run may be first.

Registration ends. A host without competitors needs two marks. Hosts that see the same marks mark
the same run, so a contested number is decided at its third level. Only a host whose look is
outdated at the moment of marking, again and again, delays the decision.

A number without a mark is taken, too, if an object in the store was written under the number: the
writer was a run whose marks were lost. Hosts of one run agree about these numbers: a run writes
only after its registration, so a new object always belongs to a run with marks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from checkpoint_store import object_names
from checkpoint_store.epochs.checkpoint_codec import encode_run
from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.epochs.operator_layout import RunMark, parse_run
from checkpoint_store.objects.named_object import list_named, put_if_absent
from checkpoint_store.objects.object_store import ObjectStore


def next_step(marks: Iterable[RunMark], run_id: str, written: int = 0) -> Run | RunMark:
    """Decide the next step of a host of `run_id` after a look that showed `marks`: a Run is the
    host's result, a RunMark is the mark to make. `written`: the greatest number under which an
    object was written. Pure."""
    numbers: dict[int, dict[int, set[str]]] = {}
    for mark in marks:
        levels = numbers.setdefault(mark.run.number, {})
        levels.setdefault(mark.level, set()).add(mark.run.run_id)
    if not numbers:
        return RunMark(Run(written + 1, run_id), 1)
    greatest = max(numbers)
    for number in sorted(numbers.keys() - {greatest}):
        if run_id in numbers[number][max(numbers[number])]:
            return Run(number, run_id)
    levels = numbers[greatest]
    top = max(levels)
    leader = min(levels[top])
    if not levels[top] == levels.get(top - 1) == {leader}:
        return RunMark(Run(greatest, leader), top + 1)
    if leader == run_id:
        return Run(greatest, run_id)
    return RunMark(Run(max(greatest, written) + 1, run_id), 1)


class RunRegistry:
    """The runs of `store`. Safe to use from several threads and processes.

    `written` finds the greatest number under which an object was written; None if there can be no
    such object. Only a host that marks a new number calls `written`.
    """

    def __init__(self, store: ObjectStore, written: Callable[[], int] | None = None) -> None:
        self._store = store
        self._written = written

    def register(self, run_id: str) -> Run:
        """Register the run with this id. Every caller gets the same Run. Its number is greater than
        the numbers of all runs registered before, and than every number under which an object was
        written."""
        seen: set[RunMark] = set()
        written_number: int | None = None
        while True:
            shown = self._marks()
            if not shown <= seen:
                seen |= shown
                continue
            step = next_step(shown, run_id, written_number or 0)
            is_new = isinstance(step, RunMark) and step.level == 1
            if is_new and self._written is not None and written_number is None:
                # The search takes a while. Other hosts may make marks meanwhile: look again.
                written_number = self._written()
                continue
            if isinstance(step, Run):
                return step
            put_if_absent(self._store, str(step), encode_run(step.run))
            seen.add(step)

    def registered(self, run_id: str) -> Run | None:
        """The run with this id if the run has its number, else None. Costs one listing."""
        step = next_step(self._marks(), run_id)
        return step if isinstance(step, Run) else None

    def all(self) -> set[Run]:
        """All runs with a mark. A run in registration may appear under several numbers."""
        return {mark.run for mark in self._marks()}

    def _marks(self) -> set[RunMark]:
        return {*list_named(self._store, object_names.RUNS, parse_run)}
