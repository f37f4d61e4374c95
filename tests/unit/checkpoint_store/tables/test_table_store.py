"""After any script of commits, writers and accidents, the table has the right versions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from checkpoint_store.errors import (
    ConflictingWriterError,
    NotATableError,
    TableMismatchError,
    TableSchemaError,
    WrittenTwiceError,
)
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.tables.table_codec import encode_table
from checkpoint_store.tables.table_layout import version_name
from checkpoint_store.tables.table_store import TableCommit, TableStore
from tests.support.manual_clock import ManualClock
from tests.support.operators.keyed_operator import KeyedOperator
from tests.support.stores.fake_object_store import DictObjectStore, InterruptedObjectStore
from tests.support.tables.table_rows_of import (
    COLUMNS,
    FIRST_MS,
    METADATA,
    ScriptedTable,
    put,
    reader_of,
    schema_json,
    state_of,
)

ALL = KeyGroupRange(0, 3)


class OverwritingObjectStore(DictObjectStore):
    """A store that overwrites an existing object without an error."""

    def put(self, name: str, data: bytes) -> None:
        self.delete([name])
        super().put(name, data)


def test_one_opening_makes_the_table_later_ones_read_it(objects: DictObjectStore) -> None:
    assert TableStore(objects).metadata() is None
    assert TableStore(objects).create(METADATA) == METADATA
    # If another writer made up another id, the first id counts.
    assert TableStore(objects).create(replace(METADATA, table_id="table-2")) == METADATA
    assert TableStore(objects).metadata() == METADATA
    assert objects.objects == {"table.json": encode_table(METADATA)}


@pytest.mark.parametrize(
    ("name", "value", "option", "asked"),
    [
        ("key_schema_json", schema_json(name="string"), "keys", "name string"),
        ("max_parallelism", 16, "maxParallelism", "16"),
        ("sequence_by", "at", "sequenceBy", "at"),
        ("ignore_null_updates", True, "ignoreNullUpdates", "true"),
    ],
)
def test_a_table_with_other_rules_is_refused_with_both_values(
    objects: DictObjectStore, name: str, value: object, option: str, asked: str
) -> None:
    TableStore(objects).create(METADATA)
    with pytest.raises(TableMismatchError) as caught:
        TableStore(objects).create(replace(METADATA, **{name: value}))  # type: ignore[arg-type]
    assert (caught.value.field, caught.value.expected) == (option, asked)
    assert caught.value.stored != asked


def test_no_table_is_made_in_the_store_of_an_operator(objects: DictObjectStore) -> None:
    KeyedOperator(objects)
    with pytest.raises(NotATableError, match=r"it has runs, store\.json"):
        ScriptedTable(objects)
    assert "table.json" not in objects.objects


@pytest.mark.parametrize(
    ("strangers", "told"),
    [
        (["part-0.parquet", "year=2026/part-0.parquet"], "part-0.parquet, year=2026"),
        ([f"{n}.csv" for n in range(7)], "0.csv, 1.csv, 2.csv, 3.csv, 4.csv and 2 more"),
        (["accounts/table.json"], "accounts"),
    ],
)
def test_a_table_is_not_made_among_the_files_of_others(
    objects: DictObjectStore, strangers: list[str], told: str
) -> None:
    for name in strangers:
        objects.put(name, b"1")
    with pytest.raises(NotATableError, match=f"not empty: it has {told}. A table needs"):
        ScriptedTable(objects)
    assert "table.json" not in objects.objects


def test_a_table_is_made_beside_hidden_and_own_files(objects: DictObjectStore) -> None:
    query = ScriptedTable(objects)
    query.write(0, [put(1, "a", 1)])
    objects.delete(["table.json"])
    for name in ("_checkpoint/metadata", ".DS_Store", "versions/x", "compactions/y"):
        objects.put(name, b"1")
    ScriptedTable(objects)
    objects.put("file-of-others", b"1")
    ScriptedTable(objects).commit(0, put(1, "a", 1))


def test_only_another_run_may_write_a_batch_again(objects: DictObjectStore) -> None:
    query = ScriptedTable(objects)
    files = (query.write(0, [put(1, "a", 1)]), query.write(0, [put(2, "b", 2)]))
    first = TableCommit("query-a", "run-a", 0, COLUMNS, files[:1])
    version = query.table.commit(first)
    with pytest.raises(WrittenTwiceError, match="batch 0 of query query-a"):
        query.table.commit(replace(first, files=files[1:]))
    assert query.table.commit(replace(first, run="run-b", files=files[1:])) == version
    assert state_of(objects) == {1: ("a", 1)}


def test_the_first_commit_is_version_zero(objects: DictObjectStore) -> None:
    query = ScriptedTable(objects)
    file = query.write(0, [put(1, "a", 1), put(2, "b", 2)])
    assert query.table.newest() is None
    version = query.publish(0, [file])
    assert (version.version, version.owner, version.batches) == (0, "query-a", {"query-a": 0})
    assert version.changes == version.state == (file,)
    assert version.schema_json == COLUMNS
    assert query.table.versions() == [0]
    assert query.table.newest() == query.table.read_version(0) == version
    assert state_of(objects) == {1: ("a", 1), 2: ("b", 2)}


@pytest.mark.parametrize("batch", [0, 2, 3])
def test_a_repeated_batch_changes_nothing(objects: DictObjectStore, batch: int) -> None:
    query = ScriptedTable(objects)
    for number in range(4):
        query.commit(number, put(number, "a", number))
    newest = query.table.newest()
    repeated = ScriptedTable(objects)
    file = repeated.write(batch, [put(9, "z", 9)])
    before = dict(objects.objects)
    assert repeated.publish(batch, [file]) == newest
    assert objects.objects == before


def test_times_of_versions_grow_if_the_clock_goes_back(objects: DictObjectStore) -> None:
    clock = ManualClock()
    query = ScriptedTable(objects, now=clock)
    times = []
    for batch, seconds in enumerate([1000.0, 1000.0, 1.0, 5000.5, 2.0]):
        clock.now = seconds
        times.append(query.commit(batch, put(1, "a", batch)).timestamp_ms)
    assert times == [FIRST_MS, FIRST_MS + 1, FIRST_MS + 2, 5_000_500, 5_000_501]
    assert [info.timestamp_ms for info in reader_of(objects).versions()] == times
    assert [reader_of(objects).latest_at(time) for time in times] == [0, 1, 2, 3, 4]


def test_a_second_query_is_refused_and_both_are_named(objects: DictObjectStore) -> None:
    ScriptedTable(objects, "query-a").commit(0, put(1, "a", 1))
    before = state_of(objects)
    with pytest.raises(ConflictingWriterError, match="takeOver") as caught:
        ScriptedTable(objects, "query-b").commit(0, put(1, "b", 2))
    assert (caught.value.owner, caught.value.writer) == ("query query-a", "query query-b")
    assert state_of(objects) == before


def test_who_takes_over_is_owner_and_the_former_refused(objects: DictObjectStore) -> None:
    former, later = ScriptedTable(objects, "query-a"), ScriptedTable(objects, "query-b")
    former.commit(0, put(1, "a", 1))
    taken = later.commit(0, put(2, "b", 2), takes_over=True)
    assert (taken.owner, taken.batches) == ("query-b", {"query-a": 0, "query-b": 0})
    # Even a batch that the table already holds: a query that lost the table has to notice.
    for batch in (0, 1):
        with pytest.raises(ConflictingWriterError, match=r"query query-b; query query-a"):
            former.commit(batch, put(1, "a", 2))
    later.commit(1, put(3, "c", 3))
    assert state_of(objects) == {1: ("a", 1), 2: ("b", 2), 3: ("c", 3)}


def test_a_table_that_is_taken_back_knows_its_batches(objects: DictObjectStore) -> None:
    first, second = ScriptedTable(objects, "query-a"), ScriptedTable(objects, "query-b")
    first.commit(0, put(1, "a", 1))
    second.commit(0, put(1, "b", 2), takes_over=True)
    assert first.commit(0, put(1, "again", 1), takes_over=True).version == 1
    assert first.commit(1, put(2, "a", 1), takes_over=True).owner == "query-a"
    assert state_of(objects) == {1: ("b", 2), 2: ("a", 1)}


def test_batch_jobs_take_turns_until_a_query_is_owner(objects: DictObjectStore) -> None:
    for number in range(2):
        job = ScriptedTable(objects, f"batch-{number}", is_query=False)
        version = job.commit(0, put(number, "a", number))
        assert (version.version, version.owner, version.batches) == (number, None, {})
    ScriptedTable(objects, "query-a").commit(0, put(9, "q", 9))
    late = ScriptedTable(objects, "batch-2", is_query=False)
    with pytest.raises(ConflictingWriterError) as caught:
        late.commit(0, put(1, "b", 2))
    assert (caught.value.owner, caught.value.writer) == ("query query-a", "batch job batch-2")
    assert late.commit(0, put(1, "b", 2), takes_over=True).batches == {"query-a": 0}
    assert state_of(objects) == {0: ("a", 0), 1: ("b", 2), 9: ("q", 9)}


def test_jobs_that_meet_both_have_their_rows(objects: DictObjectStore) -> None:
    def job(name: str, store: ObjectStore) -> ScriptedTable:
        return ScriptedTable(store, name, is_query=False)

    others = [job(f"batch-{n}", objects) for n in range(3)]
    meeting = [lambda n=n: others[n].commit(0, put(n, "other", n)) for n in range(3)]
    last = job("batch-9", InterruptedObjectStore(objects, before=[*meeting]))
    assert last.commit(0, put(9, "one", 9)).version == 3
    assert state_of(objects) == {9: ("one", 9)} | {n: ("other", n) for n in range(3)}
    keys = [sorted(state_of(objects, n)) for n in range(4)]
    assert keys == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 9]]


def test_of_two_queries_at_a_new_table_one_is_refused(objects: DictObjectStore) -> None:
    other = ScriptedTable(objects, "query-b")
    store = InterruptedObjectStore(objects, before=[lambda: other.commit(0, put(1, "b", 1))])
    with pytest.raises(ConflictingWriterError, match="query query-b; query query-a"):
        ScriptedTable(store, "query-a").commit(0, put(1, "a", 1))
    assert state_of(objects) == {1: ("b", 1)}


def test_a_batch_of_two_runs_of_a_query_counts_once(objects: DictObjectStore) -> None:
    ScriptedTable(objects).commit(0, put(1, "a", 0))
    other = ScriptedTable(objects)
    store = InterruptedObjectStore(objects, before=[lambda: other.commit(1, put(1, "a", 1))])
    assert ScriptedTable(store).commit(1, put(1, "a", 1)) == other.table.newest()
    assert other.table.versions() == [0, 1]


def test_who_is_overwritten_notices_it_and_commits_again() -> None:
    objects = OverwritingObjectStore()
    other = ScriptedTable(objects, "batch-b", is_query=False)
    other.commit(0, put(0, "first", 0))
    seen = dict(objects.objects)

    def overwrite() -> None:
        """Put version 1 of the other writer, who also saw only version 0."""
        mine = objects.objects.pop(version_name(1))
        assert version_name(1) not in seen
        other.commit(0, put(2, "b", 2))
        assert objects.objects[version_name(1)] != mine

    store = InterruptedObjectStore(objects, after=[overwrite])
    writer = ScriptedTable(store, "batch-a", is_query=False)
    assert writer.commit(0, put(1, "a", 1)).version == 2
    assert state_of(objects) == {0: ("first", 0), 1: ("a", 1), 2: ("b", 2)}


def test_a_version_deleted_as_torn_is_written_again(objects: DictObjectStore) -> None:
    store = InterruptedObjectStore(objects, after=[lambda: objects.delete([version_name(0)])])
    assert ScriptedTable(store).commit(0, put(1, "a", 1)).version == 0
    assert state_of(objects) == {1: ("a", 1)}


def test_who_never_wins_gives_up(objects: DictObjectStore) -> None:
    others = [ScriptedTable(objects, f"batch-{n}", is_query=False) for n in range(30)]
    meeting = [lambda other=other: other.commit(0, put(1, "b", 1)) for other in others]
    store = InterruptedObjectStore(objects, before=[*meeting])
    with pytest.raises(ConflictingWriterError, match="at the same time"):
        ScriptedTable(store, "batch-a", is_query=False).commit(0, put(1, "a", 1))


class TestColumns:
    WIDER = schema_json(id="long", name="string", count="integer", added="date")

    def test_rows_that_do_not_fit_are_refused(self, objects: DictObjectStore) -> None:
        query = ScriptedTable(objects)
        query.commit(0, put(1, "a", 1))
        with pytest.raises(TableSchemaError):
            query.publish(1, [], self.WIDER)
        assert query.table.versions() == [0]

    def test_rows_of_a_repeated_batch_are_not_looked_at(self, objects: DictObjectStore) -> None:
        query = ScriptedTable(objects)
        version = query.commit(0, put(1, "a", 1))
        assert query.publish(0, [], self.WIDER) == version
