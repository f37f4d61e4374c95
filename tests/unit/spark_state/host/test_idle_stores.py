"""A host that is short of memory: whose state it gives up, and whose it keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from spark_state.errors import MemoryLimitError
from spark_state.host.idle_stores import IdleStores
from spark_state.host.sessions import Sessions
from tests.support.processors import LongTexts
from tests.support.subtasks import Host, operator


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Queries:
    """Queries of one host. State may take 52 MiB; that of a query has about 10, or twice as much
    with longer texts. What undoes an epoch comes to it."""

    folder: Path
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.sessions = Sessions(self.clock)
        self.hosts: dict[str, Host] = {}
        self.epochs: Counter[str] = Counter()
        self.attempts = count()

    def run(self, name: str, length: int = 100_000, ended: tuple[str, ...] = ()) -> set[Any]:
        """One epoch of a query; how often its keys were seen before."""
        if name not in self.hosts:
            spec = operator(self.folder / name, LongTexts(length), max_memory_mb=104)
            self.hosts[name] = Host(spec, run_id=f"run of {name}")
        host, epoch = self.hosts[name], self.epochs[name]
        attempt = next(self.attempts)
        request = host.request(epoch, attempt)
        request = replace(request, task=replace(request.task, ended_runs=ended))
        rows = [(f"key {number}", 1) for number in range(100)]
        with self.sessions.subtask(request) as host.session:
            counted = host.epoch(epoch, rows, attempt)
        self.epochs[name] += 1
        return {seen for seen, _ in counted.values()}


@pytest.fixture
def queries(tmp_path: Path) -> Iterator[Queries]:
    run = Queries(tmp_path)
    yield run
    run.sessions.close()


class TestQueriesThatHaveEnded:
    def test_their_state_is_let_go_of_before_that_of_others_is_refused(
        self, queries: Queries, caplog: pytest.LogCaptureFixture
    ) -> None:
        for number in range(6):
            assert queries.run(f"query {number}") == {0}
            queries.clock.now += 2
        assert 1 < len(queries.sessions) < 6
        assert queries.hosts["query 0"].request(0, 0).store_url in caplog.text
        assert queries.run("query 0") == {1}, "it is in the store"

    def test_the_driver_knows_it_without_any_pause(self, queries: Queries) -> None:
        for number in range(6):
            earlier = tuple(f"run of query {before}" for before in range(number))
            assert queries.run(f"query {number}", ended=earlier) == {0}
        assert 1 < len(queries.sessions) < 6

    def test_only_as_many_as_it_takes_and_the_oldest_first(self, queries: Queries) -> None:
        for name in ("a", "b", "c"):
            queries.run(name)
            queries.clock.now += 2
        queries.run("d", length=300_000)
        urls = {name: host.request(0, 0).store_url for name, host in queries.hosts.items()}
        held = set(queries.sessions._held)
        assert held == {urls["b"], urls["c"], urls["d"]}

    @pytest.mark.parametrize("pause_seconds", [0.5, 60.0])
    def test_queries_that_go_on_keep_theirs(self, queries: Queries, pause_seconds: float) -> None:
        for _ in range(3):
            queries.run("a")
            queries.run("b")
            queries.clock.now += pause_seconds
        with pytest.raises(MemoryLimitError, match="that of all subtasks there"):
            queries.run("c", length=200_000)
        assert len(queries.sessions) == 3
        queries.clock.now += 4 * pause_seconds + 1.5
        queries.run("b")
        assert queries.run("c") == {0}
        assert len(queries.sessions) == 2

    def test_queries_that_come_back_do_not_take_turns_for_long(self, queries: Queries) -> None:
        """Each pause is longer than was expected, until one is expected."""
        refused_after = 0
        for _ in range(100):
            try:
                for name in ("a", "b"):
                    queries.run(name, length=280_000)
                    queries.clock.now += 5
            except MemoryLimitError:
                break
            refused_after += 1
        assert 1 <= refused_after <= 3


def test_a_store_whose_rhythm_is_forgotten_was_not_used_for_long() -> None:
    stores = IdleStores()
    urls = [f"store {number}" for number in range(2_000)]
    for url in urls:
        stores.begin_use(url, "run", now=0)
        stores.end_use(url, now=0)
    assert stores.idle_seconds(urls[-1], now=1) == 1
    assert not stores.has_ended(urls[-1], now=1)
    assert stores.idle_seconds(urls[0], now=1) > 1_000_000
    assert stores.has_ended(urls[0], now=1)
