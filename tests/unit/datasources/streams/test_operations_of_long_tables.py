"""Reading, following and compacting a table of 1,000 versions takes few requests to the store."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles
from pyspark.sql.types import LongType, StructType

from checkpoint_store.states.state_cache import StateCache
from checkpoint_store.tables.table_compaction import MergeBounds, compact_key_groups, merge_files
from checkpoint_store.tables.table_version import TableCompaction
from datasources.options import version_choice
from datasources.options.table_options import StreamOptions
from datasources.reads.asked_columns import asked_columns
from datasources.streams import table_stream
from datasources.streams.table_stream import TableStreamReader
from tests.support.stores.fake_object_store import DictObjectStore
from tests.support.tables.table_rows_of import ScriptedTable, put, reader_of

VERSIONS = 1_000
KEYS = 300
COLUMNS = StructType().add("id", LongType()).add("_commit_version", LongType())


@pytest.fixture(scope="module")
def objects() -> DictObjectStore:
    """Make a table whose query folded files from time to time."""
    store = DictObjectStore()
    query = ScriptedTable(store)
    for batch in range(VERSIONS):
        rows = [put((batch * 7 + n) % KEYS, "a", batch) for n in range(3)]
        query.publish(
            batch,
            [query.write(batch, rows)],
            merge=lambda version: merge_files(query.table, version, MergeBounds(1 << 26)),
        )
    return store


@pytest.fixture
def store(objects: DictObjectStore) -> DictObjectStore:
    return objects.copy()


def requests(store: DictObjectStore) -> Counter[str]:
    """Return the listings and the reads by directory since the last call."""
    counted = Counter(name.partition("/")[0] for name in store.reads)
    counted["listings"] = len(store.listings)
    store.reads.clear()
    store.listings.clear()
    return counted


def stream_of(
    store: DictObjectStore, monkeypatch: pytest.MonkeyPatch, **options: int
) -> TableStreamReader:
    """Make a stream that shares no memory with other streams, as in a new process."""
    history = reader_of(store)._history
    for module in (table_stream, version_choice):
        monkeypatch.setattr(module, "history_of", lambda _: history)
    monkeypatch.setattr(table_stream, "_KNOWN_STATES", StateCache().states)
    store.reads.clear()
    return TableStreamReader(StreamOptions("dict://store", **options), asked_columns("", COLUMNS))


@pytest.mark.long
def test_the_newest_state_is_read_by_a_few_requests(store: DictObjectStore) -> None:
    reader = reader_of(store)
    requests(store)
    assert reader.read().num_rows == KEYS
    made = requests(store)
    assert made["listings"] == 2
    assert made["versions"] == 1
    assert made["data"] <= 30


def test_changes_of_some_versions_read_these_and_the_state_before(store: DictObjectStore) -> None:
    reader = reader_of(store)
    requests(store)
    changes = reader.changes(VERSIONS - 11, VERSIONS - 1)
    assert set(changes["_commit_version"].to_pylist()) == set(range(VERSIONS - 10, VERSIONS))
    made = requests(store)
    assert made["listings"] == 2
    assert made["versions"] == 11
    assert made["data"] <= 10 + 30
    reader.changes(VERSIONS - 11, VERSIONS - 1, preimages=False)
    assert requests(store) == {"listings": 2, "data": 10}


def test_a_time_is_found_without_reading_all_versions(store: DictObjectStore) -> None:
    reader = reader_of(store)
    moment = reader.info(500).timestamp_ms
    requests(store)
    assert reader.latest_at(moment) == 500
    made = requests(store)
    assert (made["listings"], made["data"]) == (2, 0)
    assert made["versions"] <= 12


def test_a_stream_reads_every_version_once_and_the_state_once(
    store: DictObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_of(store, monkeypatch, max_files_per_trigger=10)
    offset = stream.initialOffset()
    snapshot = stream.latestOffset(offset, ReadAllAvailable())
    (partition,) = stream.partitions(offset, snapshot)
    assert sum(batch.num_rows for batch in stream.read(partition)) == KEYS
    assert requests(store)["data"] <= 30
    query = ScriptedTable(store, writer="another", is_query=False)
    for batch in range(40):
        query.commit(batch, put(batch, "b", batch), takes_over=True)
    requests(store)
    offset, seen = snapshot, 0
    while (end := stream.latestOffset(offset, ReadMaxFiles(10))) != offset:
        for partition in stream.partitions(offset, end):
            seen += sum(batch.num_rows for batch in stream.read(partition))
        offset = end
    assert seen == 80
    made = requests(store)
    assert (made["versions"], made["data"]) == (40, 40)
    # 4 batches, and a last listing that finds nothing.
    assert made["listings"] <= 5 * 12


def test_each_look_that_finds_nothing_new_is_two_listings(
    store: DictObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_of(store, monkeypatch)
    newest = {"version": VERSIONS - 1, "after": "version"}
    stream.latestOffset(newest, ReadAllAvailable())
    requests(store)
    assert stream.latestOffset(newest, ReadAllAvailable()) == newest
    assert stream.reportLatestOffset() == newest
    assert requests(store) == {"listings": 4}


def test_a_compaction_reads_the_files_of_the_state_and_no_versions(store: DictObjectStore) -> None:
    query = ScriptedTable(store)
    newest = query.table.newest()
    requests(store)
    file = compact_key_groups(query.table, newest, query.metadata.key_groups, 0)
    names = tuple(handle.name for handle in newest.state)
    query.table.publish_compaction(TableCompaction(newest.version, names, (file,)))
    made = requests(store)
    assert made == {"listings": 1, "data": len(newest.state)}, "its files are there"
    reader = reader_of(store)
    requests(store)
    assert reader.read().num_rows == KEYS
    assert requests(store) == {"listings": 2, "versions": 1, "data": 1, "compactions": 1}
    assert reader.read().num_rows == KEYS
    assert requests(store) == {"listings": 2, "data": 1}
