"""Commits are right although listings are old, as on a network file system with a cache."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checkpoint_store.errors import ConflictingWriterError
from checkpoint_store.tables.table_store import TableStore
from checkpoint_store.tables.table_version import TableVersion
from tests.support.stores.fake_object_store import DictObjectStore
from tests.support.stores.stale_store import ListingsOfAMinuteAgo
from tests.support.tables.table_rows_of import ScriptedTable, put


@pytest.fixture
def shared() -> DictObjectStore:
    """Make a table with one version, written by batch 0."""
    store = DictObjectStore()
    ScriptedTable(store).commit(0, put(1, "a", 1))
    return store


def table_of_jobs() -> DictObjectStore:
    """Make a table with one version, written by a batch job."""
    store = DictObjectStore()
    ScriptedTable(store, writer="first", is_query=False).commit(0, put(1, "a", 1))
    return store


def test_a_commit_follows_versions_that_its_listing_does_not_show() -> None:
    shared = table_of_jobs()
    late = ListingsOfAMinuteAgo(shared=shared)
    for number in range(30):
        ScriptedTable(shared, writer=f"job-{number}", is_query=False).commit(0, put(1, "b", number))
    job = ScriptedTable(late, writer="late", is_query=False)
    version = job.commit(0, put(1, "c", 3))
    assert version.version == 31
    assert len(version.state) == 32
    assert TableStore(shared).versions() == [*range(32)]
    assert late.listings.count("versions") == 1


def test_a_batch_that_no_listing_shows_is_not_committed_again(shared: DictObjectStore) -> None:
    late = ListingsOfAMinuteAgo(shared=shared)
    query = ScriptedTable(shared)
    query.commit(1, put(1, "a", 2))
    newest = query.commit(2, put(1, "a", 3))
    again = ScriptedTable(late)
    assert again.commit(2, put(1, "a", 3)) == newest
    assert TableStore(shared).versions() == [0, 1, 2]


def test_a_version_that_the_listing_does_not_show_is_not_lost(shared: DictObjectStore) -> None:
    late = ListingsOfAMinuteAgo(shared=shared)
    query = ScriptedTable(shared)
    for batch in (1, 2):
        query.publish(batch, [query.write(batch, [put(1, "a", batch)])], after_all=True)
    late.objects |= {name: b"" for name in shared.objects if name.startswith("data/")}
    late.modified |= shared.modified
    again = ScriptedTable(late)
    version = again.publish(3, [again.write(3, [put(1, "a", 3)])], after_all=True)
    assert (version.version, version.batches) == (3, {"query-a": 3})


def test_an_owner_that_the_listing_does_not_show_goes_on(shared: DictObjectStore) -> None:
    late = ListingsOfAMinuteAgo(shared=shared)
    taking = ScriptedTable(shared, writer="query-b")
    taking.publish(0, [taking.write(0, [put(1, "a", 2)])], takes_over=True)
    again = ScriptedTable(late, writer="query-b")
    assert again.commit(1, put(1, "a", 3)).version == 2
    with pytest.raises(ConflictingWriterError, match="query query-b"):
        ScriptedTable(late, writer="query-c").commit(0, put(1, "a", 3))


def test_tries_of_a_commit_wait_longer_each_time_and_finish_once() -> None:
    shared = table_of_jobs()
    pauses: list[int] = []
    finished: list[int] = []

    class Racing(DictObjectStore):
        """A store in which another job commits first, five times."""

        def put(self, name: str, data: bytes) -> None:
            if name.startswith("versions/") and len(pauses) < 5:
                job = ScriptedTable(shared, writer=f"job-{len(pauses)}", is_query=False)
                job.commit(0, put(1, "b", 1))
            super().put(name, data)

    racing = Racing(objects=shared.objects, modified=shared.modified)
    query = ScriptedTable(racing, writer="late", is_query=False)
    query.table = TableStore(racing, metadata=query.metadata, pause=pauses.append)

    def finish(version: TableVersion) -> TableVersion:
        finished.append(version.version)
        return version

    assert query.publish(0, [query.write(0, [put(1, "a", 2)])], finish=finish).version == 6
    assert (pauses, finished) == ([0, 1, 2, 3, 4], [1])


def test_pauses_are_random_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from checkpoint_store.tables import table_store

    slept: list[float] = []
    most: Callable[[float, float], float] = lambda low, high: high  # noqa: E731
    monkeypatch.setattr(table_store.random, "uniform", most)
    monkeypatch.setattr(table_store.time, "sleep", slept.append)
    for number in range(20):
        table_store.pause_between_tries(number)
    assert slept[:3] == [0.02, 0.04, 0.08]
    assert slept == sorted(slept)
    assert max(slept) == 2.0
