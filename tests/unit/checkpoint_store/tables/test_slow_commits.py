"""Commits are safe if a writer pauses before the next version, or if its listings are old."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from checkpoint_store.errors import ConflictingWriterError, UncertainCommitError
from checkpoint_store.tables.table_layout import version_name
from checkpoint_store.tables.table_retention import TableRetention
from checkpoint_store.tables.table_store import TableStore
from checkpoint_store.tables.table_version import TableVersion
from tests.support.stores.fake_object_store import DictObjectStore, InterruptedObjectStore
from tests.support.stores.stale_store import ListingsOfAMinuteAgo
from tests.support.tables.table_rows_of import ScriptedTable, put, state_of

NEWEST = 30
KEPT = 5


@pytest.fixture
def shared() -> DictObjectStore:
    """Make a table with versions 0 and 1."""
    store = DictObjectStore()
    for number in range(2):
        ScriptedTable(store, f"job-{number}", is_query=False).commit(0, put(number, "a", number))
    return store


def others_commit(store: DictObjectStore, *, merges: bool = False) -> None:
    """Commit from other jobs until retention has deleted the first versions."""
    job = ScriptedTable(store, "other", is_query=False)
    for number in range(2, NEWEST):
        files = [job.write(number, [put(number, "b", number)])]
        # A fold may replace all files of a table by new files.
        whole = (job.write(number, [put(0, "folded", number)], kind="snapshot"),)
        job.publish(number, files, finish=partial(replace, state=whole) if merges else None)
        TableRetention(store, job.table).retain(KEPT)
    assert job.table.versions()[0] > 2


@pytest.mark.parametrize("is_query", [False, True])
def test_a_number_freed_by_retention_is_not_taken(shared: DictObjectStore, is_query: bool) -> None:
    store = InterruptedObjectStore(shared, before=[lambda: others_commit(shared)])
    late = ScriptedTable(store, "late", is_query=is_query)
    assert late.commit(0, put(99, "late", 1)).version == NEWEST
    assert state_of(shared)[99] == ("late", 1)
    assert late.table.versions() == [*range(late.table.versions()[0], NEWEST + 1)]


@pytest.mark.parametrize("is_query", [False, True])
def test_retention_keeps_files_of_a_late_commit(shared: DictObjectStore, is_query: bool) -> None:
    """Another job's retention reads the late version before the late version's writer deletes
    it."""

    class RetainsBeforeDeletion(InterruptedObjectStore):
        def delete(self, names: Sequence[str]) -> None:
            job = ScriptedTable(shared, "retaining", is_query=False)
            for number in range(NEWEST, NEWEST + 10):
                job.commit(number, put(number, "c", number))
            TableRetention(shared, job.table).retain(KEPT)
            assert names[0] not in shared.objects
            super().delete(names)

    store = RetainsBeforeDeletion(shared, before=[lambda: others_commit(shared)])
    late = ScriptedTable(store, "late", is_query=is_query)
    late.commit(0, put(99, "late", 1))
    assert state_of(shared)[99] == ("late", 1)


def test_a_commit_in_time_is_not_made_twice(shared: DictObjectStore) -> None:
    store = InterruptedObjectStore(shared, after=[lambda: others_commit(shared)])
    writer = ScriptedTable(store, "slow", is_query=False)
    assert writer.commit(0, put(99, "slow", 1)).version == 2
    assert state_of(shared)[99] == ("slow", 1)
    assert version_name(2) not in shared.objects


def test_a_commit_whose_files_were_folded_meanwhile_is_uncertain(shared: DictObjectStore) -> None:
    store = InterruptedObjectStore(shared, after=[lambda: others_commit(shared, merges=True)])
    writer = ScriptedTable(store, "slow", is_query=False)
    with pytest.raises(UncertainCommitError, match=r"batch job slow put version 2 of .* so late"):
        writer.commit(0, put(99, "slow", 1))


def test_deletion_of_one_version_is_no_reason_to_commit_again(shared: DictObjectStore) -> None:
    store = InterruptedObjectStore(shared, after=[lambda: shared.delete([version_name(1)])])
    writer = ScriptedTable(store, "slow", is_query=False)
    assert writer.commit(0, put(99, "slow", 1)).version == 2
    assert writer.table.versions() == [0, 2]


def test_the_first_version_of_a_table_may_be_late_too() -> None:
    shared = DictObjectStore()
    store = InterruptedObjectStore(shared, before=[lambda: others_begin(shared)])
    late = ScriptedTable(store, "late", is_query=False)
    assert late.commit(0, put(99, "late", 1)).version == NEWEST
    assert state_of(shared)[99] == ("late", 1)


def others_begin(store: DictObjectStore) -> None:
    for number in range(2):
        ScriptedTable(store, f"job-{number}", is_query=False).commit(0, put(number, "a", number))
    others_commit(store)


@pytest.fixture
def of_query() -> DictObjectStore:
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


def test_a_batch_that_no_listing_shows_is_not_committed_again(of_query: DictObjectStore) -> None:
    late = ListingsOfAMinuteAgo(shared=of_query)
    query = ScriptedTable(of_query)
    query.commit(1, put(1, "a", 2))
    newest = query.commit(2, put(1, "a", 3))
    again = ScriptedTable(late)
    assert again.commit(2, put(1, "a", 3)) == newest
    assert TableStore(of_query).versions() == [0, 1, 2]


def test_a_version_that_the_listing_does_not_show_is_not_lost(of_query: DictObjectStore) -> None:
    late = ListingsOfAMinuteAgo(shared=of_query)
    query = ScriptedTable(of_query)
    for batch in (1, 2):
        query.publish(batch, [query.write(batch, [put(1, "a", batch)])], after_all=True)
    late.objects |= {name: b"" for name in of_query.objects if name.startswith("data/")}
    late.modified |= of_query.modified
    again = ScriptedTable(late)
    version = again.publish(3, [again.write(3, [put(1, "a", 3)])], after_all=True)
    assert (version.version, version.batches) == (3, {"query-a": 3})


def test_an_owner_that_the_listing_does_not_show_goes_on(of_query: DictObjectStore) -> None:
    late = ListingsOfAMinuteAgo(shared=of_query)
    taking = ScriptedTable(of_query, writer="query-b")
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
