"""A table of a query, and all that readers, its writer and its clean-up may ask of it.

Versions 0 to 7 have two files each, folded four at a time; version 5 was compacted after version 6
was committed, and version 7 begins with what the compaction wrote. An answer is a plain value, so
that those of a damaged table can be compared with those of the table as it was.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, cast
from unittest import mock

from pyspark.sql.streaming.datasource import ReadMaxFiles
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from checkpoint_store.key_group_range import KeyGroupRange
from checkpoint_store.open_history import history_in
from checkpoint_store.row_fold import CHANGE_TYPE, COMMIT_VERSION
from checkpoint_store.state_handle import StateHandle
from checkpoint_store.state_reader import StateReader
from checkpoint_store.table_compaction import MergeBounds, compact_key_groups, merge_files
from checkpoint_store.table_retention import retain_versions, sweep_table_orphans
from checkpoint_store.table_store import TableCommit, TableStore
from checkpoint_store.table_version import TableCompaction
from tests.support.damage import (
    Answer,
    DamagedStore,
    Question,
    answer_or_error,
    read_each,
    sorted_rows,
)
from tests.support.fake_object_store import DictObjectStore
from tests.support.streamed_objects import streamed
from tests.support.table_rows_of import (
    COLUMNS,
    FIRST_MS,
    Row,
    ScriptedTable,
    Values,
    by_key,
    gone,
    merging,
    put,
    state_of,
)

NEWEST = 7
COMPACTED = 5
RETAINED = 3
STREAMED = (
    StructType()
    .add("id", LongType())
    .add("name", StringType())
    .add("count", IntegerType())
    .add(CHANGE_TYPE, StringType())
    .add(COMMIT_VERSION, LongType())
)

State = dict[int, Values]


def rows_of(batch: int) -> list[list[Row]]:
    """Those of the two files of a batch: every batch changes key 0, adds a key and deletes one."""
    return [
        [put(0, "zero", batch), gone(batch)] if batch else [put(0, "zero", 0)],
        [put(batch + 1, "added", batch)],
    ]


def state_at(version: int) -> State:
    """What the table holds."""
    state: State = {}
    for batch in range(version + 1):
        for row in (row for file in rows_of(batch) for row in file):
            if row.values is None:
                state.pop(row.id, None)
            else:
                state[row.id] = row.values
    return state


@cache
def _written() -> DictObjectStore:
    objects = DictObjectStore()
    query = ScriptedTable(objects)
    compaction: TableCompaction | None = None
    for batch in range(NEWEST + 1):
        commit_batch(query, batch)
        version = query.table.newest()
        assert version is not None
        if batch == COMPACTED:
            names = tuple(file.name for file in version.state)
            file = compact_key_groups(query.table, version, KeyGroupRange(0, 3), 0)
            compaction = TableCompaction(batch, names, (file,))
        if batch == COMPACTED + 1 and compaction is not None:
            query.table.publish_compaction(compaction)
    return objects


def written() -> DictObjectStore:
    """The objects of the table, a copy."""
    return _written().copy()


def commit_batch(query: ScriptedTable, batch: int, bounds: MergeBounds | None = None) -> int:
    """Write a batch as the sink of a query does; the number of the version."""
    files = [query.write(batch, rows, subtask=n) for n, rows in enumerate(rows_of(batch))]
    commit = TableCommit(query.writer, f"run-{batch}", batch, COLUMNS, tuple(files), after_all=True)
    bounds = bounds or MergeBounds(1 << 30, files=4)
    merged = query.table.commit(
        commit, merging(lambda version: merge_files(query.table, version, bounds))
    )
    return merged.version


def needed_files(version: int) -> set[str]:
    """The files that a reader of the state at a version reads."""
    return {file.name for file in _state_files(version)}


def added_files(version: int) -> set[str]:
    """The files that a reader of a version's changes reads."""
    found = TableStore(_written()).read_version(version)
    assert found is not None
    return {file.name for file in found.changes}


def _state_files(version: int) -> tuple[StateHandle, ...]:
    history = history_in(_written())
    history.versions()
    return history.at(version).state


def time_of(version: int) -> int:
    """When a version was committed."""
    return FIRST_MS + 1000 * version


def _opened(store: DamagedStore) -> StateReader:
    return StateReader(history_in(store.objects))


def _newest(store: DamagedStore) -> Answer:
    reader = _opened(store)
    version = reader.info().version
    return version, by_key(reader.read(version))


def _version(version: int, store: DamagedStore) -> Answer:
    return by_key(_opened(store).read(version))


def _at_time(milliseconds: int, store: DamagedStore) -> Answer:
    reader = _opened(store)
    version = reader.latest_at(milliseconds)
    return version, by_key(reader.read(version))


def _changes(start: int, end: int, store: DamagedStore) -> Answer:
    rows = _opened(store).changes(start, end)
    return sorted_rows(rows.drop_columns(["_commit_timestamp"]))


def right_changes(start: int, end: int) -> list[tuple[Any, ...]]:
    """Those of the table as it was."""
    return cast(list[tuple[Any, ...]], _changes(start, end, DamagedStore(_written(), ())))


def _from_the_beginning(store: DamagedStore) -> Answer:
    """The last version, and the state to which the changes lead."""
    rows = _opened(store).changes(None, preimages=False).to_pylist()
    state: State = {}
    for row in rows:
        key, *values = list(row.values())[:3]
        if row[CHANGE_TYPE] == "delete":
            state.pop(key, None)
        else:
            state[key] = tuple(values)
    return max((row[COMMIT_VERSION] for row in rows), default=-1), state


def _stream(start: int, store: DamagedStore) -> Answer:
    """The version at which a stream arrives from another one, and the rows on the way."""
    end, rows = streamed(store.objects, STREAMED, _offset_after(start))
    return end["version"], rows


@cache
def _offset_after(version: int) -> dict[str, Any]:
    """What a stream wrote down that has read up to a version, before anything was damaged."""
    start = {"version": version - 1, "after": "version"}
    end, _ = streamed(_written(), STREAMED, start, ReadMaxFiles(1), maxFilesPerTrigger="1")
    assert end["version"] == version
    return end


def _commit(store: DamagedStore) -> Answer:
    """What the next batch makes of the table, once what was damaged is as it was."""
    version = commit_batch(ScriptedTable(store.objects), NEWEST + 1, MergeBounds(1 << 30, files=2))
    return version, state_of(store.restored_from_a_backup())


def _retain(store: DamagedStore) -> Answer:
    """The versions that are to be kept, after retention and once what was damaged is as it was."""
    table = TableStore(store.objects)
    with mock.patch("checkpoint_store.table_retention._VERSIONS_AT_ONCE", 1):
        retain_versions(store.objects, table, RETAINED)
    return _states(store, range(NEWEST + 1 - RETAINED, NEWEST + 1))


def _sweep(store: DamagedStore) -> Answer:
    """All versions, after the orphan sweep and once what was damaged is as it was."""
    sweep_table_orphans(store.objects, TableStore(store.objects), 0.0, 1.0)
    return _states(store, range(NEWEST + 1))


def _states(store: DamagedStore, versions: range) -> Answer:
    healed = store.restored_from_a_backup()
    return read_each(partial(state_of, healed), versions)


QUESTIONS: dict[str, Question] = {
    "newest": _newest,
    **{f"version {n}": partial(_version, n) for n in range(NEWEST + 1)},
    **{f"time of {n}": partial(_at_time, time_of(n)) for n in (0, 1, 5, 6, 7)},
    **{f"shortly after {n}": partial(_at_time, time_of(n) + 500) for n in (0, 2, 6)},
    **{f"changes {a} to {b}": partial(_changes, a, b) for a, b in ((0, 7), (0, 2), (2, 4), (4, 7))},
    "changes from the beginning": _from_the_beginning,
    **{f"stream from {n}": partial(_stream, n) for n in (1, 4, 7)},
    "commit": _commit,
    "retain": _retain,
    "sweep": _sweep,
}


def answer(question: str, store: DamagedStore) -> Answer:
    """The answer, or the CheckpointStoreError that comes instead."""
    return answer_or_error(QUESTIONS[question], store)


@cache
def right_answers() -> dict[str, Answer]:
    """Those of the table as it was."""
    found = {name: answer(name, DamagedStore(_written(), ())) for name in QUESTIONS}
    assert found["newest"] == (NEWEST, state_at(NEWEST))
    assert found["commit"] == (NEWEST + 1, state_at(NEWEST + 1))
    assert found["sweep"] == {version: state_at(version) for version in range(NEWEST + 1)}
    return found
