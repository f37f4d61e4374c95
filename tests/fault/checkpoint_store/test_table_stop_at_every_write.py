"""A table stays whole if a script of commits, folds, compaction and retention stops in any write.

A later reader of the table finds every committed and retained version unchanged. No
named file is missing. The query, started again with the interrupted batch, ends with the same table
as without the stop.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.objects.deletion import sweep_orphans
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.objects.object_info import UNPUBLISHED
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.tables.table_compaction import MergeBounds, compact_key_groups, merge_files
from checkpoint_store.tables.table_layout import parse_table_file
from checkpoint_store.tables.table_orphans import TableOrphans
from checkpoint_store.tables.table_retention import TableRetention
from checkpoint_store.tables.table_store import TableStore
from checkpoint_store.tables.table_version import TableCompaction
from tests.support.stores.fake_object_store import (
    STOP_MODES,
    DictObjectStore,
    StopMode,
    Stopped,
    StoppingObjectStore,
)
from tests.support.tables.table_rows_of import ScriptedTable, Values, put, reader_of, state_of

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures("without_threads")]

BATCHES = 6
MIN_VERSIONS = 2
BOUNDS = MergeBounds(1 << 40, files=4)


def expected(version: int) -> dict[int, Values]:
    """The rows of a version. Every batch changes keys 0 and 1 and adds a key, so a mixture
    shows."""
    common: dict[int, Values] = {0: ("zero", version), 1: ("one", version)}
    return common | {n + 2: ("added", n) for n in range(version + 1)}


def run_script(store: ObjectStore, first: int = 0, done: list[int] | None = None) -> None:
    """Run all batches from `first` on, and append each finished batch to `done`."""
    query = ScriptedTable(store)
    for batch in range(first, BATCHES):
        files = [
            query.write(batch, [put(0, "zero", batch), put(1, "old", batch)]),
            query.write(batch, [put(1, "one", batch), put(batch + 2, "added", batch)], subtask=1),
        ]
        version = query.publish(
            batch, files, merge=lambda version: merge_files(query.table, version, BOUNDS)
        )
        if batch == BATCHES // 2:
            names = tuple(file.name for file in version.state)
            whole = compact_key_groups(query.table, version, KeyGroupRange(0, 3), 0)
            query.table.publish_compaction(TableCompaction(version.version, names, (whole,)))
        TableRetention(store, query.table).retain(MIN_VERSIONS)
        if done is not None:
            done.append(batch)


def stopped_at(objects: Any, write: int, mode: StopMode) -> list[int]:
    """Run the script until a write, and return the batches finished before."""
    done: list[int] = []
    with pytest.raises(Stopped):
        run_script(StoppingObjectStore(cast(DictObjectStore, objects), write, mode), done=done)
    return done


def writes_of_script() -> int:
    store = StoppingObjectStore(DictObjectStore(), stop_at=0, mode="before the write")
    with mock.patch("checkpoint_store.tables.table_retention._VERSIONS_AT_ONCE", 1):
        run_script(store)
    return store.writes


WRITES = writes_of_script()


@pytest.fixture(autouse=True)
def each_version_is_deleted_at_once() -> Iterator[None]:
    with mock.patch("checkpoint_store.tables.table_retention._VERSIONS_AT_ONCE", 1):
        yield


def check_versions(store: ObjectStore, done: list[int]) -> None:
    """Assert that every version is readable, and all committed, retained versions exist."""
    versions = [info.version for info in reader_of(store).versions()]
    # The interrupted batch exists or not; if it exists, retention keeps one version less before it.
    newest = max(versions, default=-1)
    assert newest in (len(done) - 1, len(done))
    assert set(range(max(newest - MIN_VERSIONS + 1, 0), newest + 1)) <= set(versions)
    for version in versions:
        assert state_of(store, version) == expected(version)
    if versions:
        changed = reader_of(store).changes(versions[0])
        assert set(changed["_commit_version"].to_pylist()) == set(versions[1:])


def check_nothing_is_left_over(objects: DictObjectStore) -> None:
    table = TableStore(objects)
    TableRetention(objects, table).retain(MIN_VERSIONS)
    sweep_orphans(objects, TableOrphans(objects, table), grace_seconds=0.0, now=1.0)
    versions = [table.read_version(number) for number in table.versions()]
    assert len(versions) == MIN_VERSIONS
    named = {name for version in versions if version for name in version.object_names()}
    named |= {file.name for compaction in table.compactions() for file in compaction.files}
    assert {name for name in objects.objects if parse_table_file(name)} == named
    assert not [name for name in objects.objects if name.startswith(UNPUBLISHED)]


def test_the_script_has_many_writes() -> None:
    assert WRITES > 30


@pytest.mark.parametrize("mode", STOP_MODES)
@pytest.mark.parametrize("stop_at", range(1, WRITES + 1))
def test_a_stop_loses_no_version_and_no_batch(stop_at: int, mode: StopMode) -> None:
    objects = DictObjectStore()
    done = stopped_at(objects, stop_at, mode)
    if TableStore(objects).metadata() is not None:
        check_versions(objects, done)
    run_script(objects, len(done))
    check_nothing_is_left_over(objects)
    check_versions(objects, [*range(BATCHES)])
    assert TableStore(objects).versions()[-1] == BATCHES - 1


@pytest.mark.parametrize("mode", STOP_MODES)
def test_a_batch_that_was_over_may_come_again(mode: StopMode) -> None:
    """Spark repeats a batch whose commit Spark did not note, whatever the table holds."""
    for stop_at in range(1, WRITES + 1, 3):
        objects = DictObjectStore()
        done = stopped_at(objects, stop_at, mode)
        run_script(objects, max(len(done) - 1, 0))
        check_versions(objects, [*range(BATCHES)])
        assert TableStore(objects).versions()[-1] == BATCHES - 1


@pytest.mark.parametrize("mode", ["half written", "before the link", "after the link"])
def test_a_stop_on_a_disk_loses_no_version_and_no_batch(tmp_path: Path, mode: StopMode) -> None:
    for stop_at in range(1, WRITES + 1, 4):
        disk = LocalObjectStore(tmp_path / str(stop_at))
        done = stopped_at(disk, stop_at, mode)
        if TableStore(disk).metadata() is not None:
            check_versions(disk, done)
        run_script(disk, len(done))
        check_versions(disk, [*range(BATCHES)])
