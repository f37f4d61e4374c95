"""A writer that pauses between reading a version and putting the next version commits safely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from checkpoint_store.errors import UncertainCommitError
from checkpoint_store.tables.table_layout import version_name
from checkpoint_store.tables.table_retention import TableRetention
from tests.support.stores.fake_object_store import DictObjectStore, InterruptedObjectStore
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
