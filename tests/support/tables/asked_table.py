"""A table of a query, and all questions of readers, the writer and the clean-up to the table.

Versions 0 to 7 have two files each, folded four at a time. Version 5 was compacted after the commit
of version 6. Version 7 begins with the files of the compaction.
"""

from __future__ import annotations

from functools import cache
from typing import Any
from unittest import mock

from pyspark.sql.streaming.datasource import ReadMaxFiles
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.objects.deletion import sweep_orphans
from checkpoint_store.open_history import history_in
from checkpoint_store.state_reader import StateReader
from checkpoint_store.states.row_fold import CHANGE_TYPE, COMMIT_VERSION
from checkpoint_store.tables.table_compaction import MergeBounds, compact_key_groups, merge_files
from checkpoint_store.tables.table_orphans import TableOrphans
from checkpoint_store.tables.table_retention import TableRetention
from checkpoint_store.tables.table_store import TableCommit, TableStore
from checkpoint_store.tables.table_version import TableCompaction
from tests.support.stores.damage import Answer, AskedStore, DamagedStore
from tests.support.stores.fake_object_store import DictObjectStore
from tests.support.stores.streamed_objects import streamed
from tests.support.tables.table_rows_of import (
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


def _rows_of(batch: int) -> list[list[Row]]:
    """The rows of a batch's two files. Every batch changes key 0 and adds a key. Every batch but
    batch 0 also deletes a key."""
    return [
        [put(0, "zero", batch), gone(batch)] if batch else [put(0, "zero", 0)],
        [put(batch + 1, "added", batch)],
    ]


def _state_at(version: int) -> State:
    state: State = {}
    for batch in range(version + 1):
        for row in (row for file in _rows_of(batch) for row in file):
            if row.values is None:
                state.pop(row.id, None)
            else:
                state[row.id] = row.values
    return state


def _written() -> DictObjectStore:
    objects = DictObjectStore()
    query = ScriptedTable(objects)
    compaction: TableCompaction | None = None
    for batch in range(NEWEST + 1):
        _commit_batch(query, batch)
        version = query.table.newest()
        assert version is not None
        if batch == COMPACTED:
            names = tuple(file.name for file in version.state)
            file = compact_key_groups(query.table, version, KeyGroupRange(0, 3), 0)
            compaction = TableCompaction(batch, names, (file,))
        if batch == COMPACTED + 1 and compaction is not None:
            query.table.publish_compaction(compaction)
    return objects


def _commit_batch(query: ScriptedTable, batch: int, bounds: MergeBounds | None = None) -> int:
    """Write a batch as the sink of a query does. Returns the number of the version."""
    files = [query.write(batch, rows, subtask=n) for n, rows in enumerate(_rows_of(batch))]
    commit = TableCommit(query.writer, f"run-{batch}", batch, COLUMNS, tuple(files), after_all=True)
    bounds = bounds or MergeBounds(1 << 30, files=4)
    merged = query.table.commit(
        commit, merging(lambda version: merge_files(query.table, version, bounds))
    )
    return merged.version


def _time_of(version: int) -> int:
    return FIRST_MS + 1000 * version


def _all_changes(store: DamagedStore) -> Answer:
    """The last version, and the state that all changes add up to."""
    rows = StateReader(history_in(store.objects)).changes(None, preimages=False).to_pylist()
    state: State = {}
    for row in rows:
        key, *values = list(row.values())[:3]
        if row[CHANGE_TYPE] == "delete":
            state.pop(key, None)
        else:
            state[key] = tuple(values)
    return max((row[COMMIT_VERSION] for row in rows), default=-1), state


def _stream(store: DamagedStore, start: int) -> Answer:
    """The version at which a stream from version `start` arrives, and the rows between both
    versions."""
    end, rows = streamed(store.objects, STREAMED, _offset_after(start))
    return end["version"], rows


@cache
def _offset_after(version: int) -> dict[str, Any]:
    """The saved offset of a stream that has read up to `version` of the intact table."""
    start = {"version": version - 1, "after": "version"}
    end, _ = streamed(TABLE.intact, STREAMED, start, ReadMaxFiles(1), maxFilesPerTrigger="1")
    assert end["version"] == version
    return end


def _commit(store: DamagedStore) -> Answer:
    """Commit the next batch. Returns the new version, and the state after a restore of the damaged
    objects from a backup."""
    version = _commit_batch(ScriptedTable(store.objects), NEWEST + 1, MergeBounds(1 << 30, files=2))
    return version, state_of(store.restored_from_a_backup())


def _retain(objects: DictObjectStore) -> None:
    with mock.patch("checkpoint_store.tables.table_retention._VERSIONS_AT_ONCE", 1):
        TableRetention(objects, TableStore(objects)).retain(RETAINED)


def _sweep(objects: DictObjectStore) -> None:
    sweep_orphans(objects, TableOrphans(objects, TableStore(objects)), 0.0, 1.0)


TABLE = AskedStore(
    intact=_written(),
    newest=NEWEST,
    kept=range(NEWEST + 1 - RETAINED, NEWEST + 1),
    state_at=_state_at,
    time_of=_time_of,
    rows=by_key,
    retain=_retain,
    sweep=_sweep,
    further={"all": _all_changes, "stream": _stream, "commit": _commit},
    questions=(
        "newest",
        *(f"version {n}" for n in range(NEWEST + 1)),
        *(f"time of {n}" for n in (0, 1, 5, 6, 7)),
        *(f"shortly after {n}" for n in (0, 2, 6)),
        *(f"changes {a} to {b}" for a, b in ((0, 7), (0, 2), (2, 4), (4, 7))),
        "all changes",
        *(f"stream from {n}" for n in (1, 4, 7)),
        "commit",
        "retain",
        "sweep",
    ),
)
