"""Hosts that register runs at the same moment get unique numbers, in every order of their steps.

A host's steps are the calls of its object store: a page of a listing, or the creation of a mark. To
stop a host between any two calls, the test runs the host again from its beginning with all earlier
answers, up to the next call. So hosts can go on in every order.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from hypothesis import given
from hypothesis import strategies as st

from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.epochs.operator_layout import RunMark
from checkpoint_store.objects.object_info import ObjectInfo
from checkpoint_store.runs.run_registry import RunRegistry
from tests.support.examples import examples

Names = frozenset[str]
LONGEST_ORDER = 22
MOST_STEPS_ALONE = 40


@dataclass(frozen=True)
class Page:
    """A host's next call, for a page of the listing."""

    number: int


@dataclass(frozen=True)
class Creation:
    """A host's next call, which creates an object."""

    name: str


class _NextCall(Exception):
    """Raised when the answers are used up."""

    def __init__(self, call: Page | Creation) -> None:
        super().__init__(call)
        self.call = call


@dataclass
class _AnsweredStore:
    """An object store with given answers: the names of a page, or the created name."""

    answers: list[Names]
    pages: int
    url: str = "answered://store"

    def put(self, name: str, data: bytes) -> None:
        self._answer(Creation(name))

    def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
        pages = [self._answer(Page(number)) for number in range(self.pages)]
        return [ObjectInfo(name, 0, None) for page in pages for name in page if prefix in name]

    def _answer(self, call: Page | Creation) -> Names:
        if not self.answers:
            raise _NextCall(call)
        return self.answers.pop(0)

    def get(self, name: str) -> bytes:
        raise AssertionError("a registration reads nothing")

    def get_range(self, name: str, start: int, length: int) -> bytes:
        raise AssertionError("a registration reads nothing")

    def list_directories(self, directory: str) -> Sequence[str]:
        raise AssertionError("a registration lists no directories")

    def delete(self, names: Sequence[str]) -> None:
        raise AssertionError("a registration deletes nothing")


@dataclass(frozen=True)
class RegisteringHost:
    """A host of a run, with the answers so far."""

    run_id: str
    pages: int = 1
    answers: tuple[Names, ...] = ()

    @cached_property
    def next_call(self) -> Run | Page | Creation:
        """The next call of the host, or its run if the host is registered."""
        return _next_call(self)

    @property
    def progress(self) -> object:
        """The facts that determine the host's future."""
        return self.run_id, frozenset().union(*self.answers), self.next_call


@cache
def _next_call(host: RegisteringHost) -> Run | Page | Creation:
    """Replay the host up to its next call. Cached, because most orders lead to known progress."""
    store = _AnsweredStore([*host.answers], host.pages)
    try:
        return RunRegistry(store).register(host.run_id)
    except _NextCall as caught:
        return caught.call


@dataclass(frozen=True)
class Race:
    """The names in the store, and the hosts with their progress."""

    hosts: tuple[RegisteringHost, ...]
    names: Names = frozenset()

    def after_step_of(self, index: int) -> Race:
        """Let a host make its next call."""
        host, names = self.hosts[index], self.names
        match host.next_call:
            case Creation(name):
                answer = Names({name})
                names |= answer
            case Page(number):
                answer = Names(n for n in names if zlib.crc32(n.encode()) % host.pages == number)
            case run:
                raise AssertionError(f"{run} is registered")
        moved = replace(host, answers=(*host.answers, answer))
        return Race((*self.hosts[:index], moved, *self.hosts[index + 1 :]), names)

    def running(self) -> list[int]:
        """The hosts that have not registered yet."""
        return [i for i, host in enumerate(self.hosts) if not isinstance(host.next_call, Run)]

    def finished(self) -> Race:
        """Let every host continue alone, in order, until all hosts have registered."""
        race = self
        for index in self.running():
            steps = 0
            while index in race.running():
                race, steps = race.after_step_of(index), steps + 1
                assert steps < MOST_STEPS_ALONE, race
        return race

    def check(self) -> None:
        """Assert that each run has one number, and each number one run."""
        runs = {run for host in self.hosts if isinstance(run := host.next_call, Run)}
        assert len({run.run_id for run in runs}) == len(runs), runs
        assert len({run.number for run in runs}) == len(runs), runs

    @property
    def state(self) -> object:
        return self.names, tuple(host.progress for host in self.hosts)


def all_orders(race: Race, steps: int) -> Iterable[Race]:
    """All states after the first `steps` calls, in every order of the hosts."""
    seen, reached = {race.state}, [race]
    for _ in range(steps):
        following = [
            reached_race.after_step_of(index)
            for reached_race in reached
            for index in reached_race.running()
        ]
        fresh = {after.state: after for after in following if after.state not in seen}
        seen |= fresh.keys()
        reached = list(fresh.values())
        yield from reached


def test_every_order_of_two_hosts_of_a_run_and_one_of_another_gives_each_run_one_number() -> None:
    # Hosts of one run mark the same objects.
    start = Race((RegisteringHost("a"), RegisteringHost("a"), RegisteringHost("b")))
    outcomes = set()
    for number, race in enumerate(all_orders(start, LONGEST_ORDER)):
        race.check()
        if not race.running():
            outcomes.add(tuple(host.next_call for host in race.hosts))
        elif number % 10 == 0:
            race.finished().check()
    a_first = (Run(1, "a"), Run(1, "a"), Run(2, "b"))
    b_first = (Run(2, "a"), Run(2, "a"), Run(1, "b"))
    assert outcomes == {a_first, b_first}


@st.composite
def races(draw: st.DrawFn) -> Race:
    """Draw hosts of several runs, listings in pages, and marks of earlier runs."""
    ids = draw(st.lists(st.sampled_from("abcd"), min_size=2, max_size=7))
    hosts = [
        RegisteringHost(run_id, pages=draw(st.integers(1, 3))) for number, run_id in enumerate(ids)
    ]
    before = draw(st.lists(st.sampled_from(["w", "x", "yz"]), max_size=3))
    race = Race(tuple(RegisteringHost(run_id) for run_id in before))
    return Race(tuple(hosts), race.finished().names)


@examples(170)
@given(races(), st.lists(st.integers(0, 6), max_size=150))
def test_hosts_of_many_runs_agree_whatever_the_order_of_their_steps(
    race: Race, order: list[int]
) -> None:
    begun: set[int] = set()
    must_be_later: dict[int, set[Run]] = {}
    for drawn in order:
        running = race.running()
        if not running:
            break
        index = running[drawn % len(running)]
        if index not in begun:
            begun.add(index)
            done = {host.next_call for host in race.hosts}
            must_be_later[index] = {run for run in done if isinstance(run, Run)}
        race = race.after_step_of(index)
        race.check()
    race = race.finished()
    race.check()
    for index, earlier in must_be_later.items():
        run = race.hosts[index].next_call
        assert isinstance(run, Run)
        assert all(run > other for other in earlier if other.run_id != run.run_id)


def test_runs_whose_marks_were_swept_do_not_give_their_numbers_away() -> None:
    names = Names(str(RunMark(Run(number, f"x{number}"), 1)) for number in (7, 8))
    assert Race((RegisteringHost("a"),), names).finished().hosts[0].next_call == Run(9, "a")
