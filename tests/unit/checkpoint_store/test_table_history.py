"""What readers of a table see while it is written, compacted and cleaned."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from checkpoint_store.errors import VersionNotRetainedError
from checkpoint_store.key_group_range import KeyGroupRange
from checkpoint_store.object_store import LocalObjectStore, ObjectInfo
from checkpoint_store.state_history import StateHistory, VersionInfo
from checkpoint_store.state_reader import StateReader
from checkpoint_store.table_compaction import compact_key_groups
from checkpoint_store.table_history import TableHistory, shape_of
from checkpoint_store.table_layout import version_name
from checkpoint_store.table_retention import retain_versions
from checkpoint_store.table_store import TableStore
from checkpoint_store.table_version import TableCompaction
from tests.support.fake_object_store import DictObjectStore
from tests.support.table_rows_of import (
    FIRST_MS,
    METADATA,
    SEQUENCED,
    ScriptedTable,
    by_key,
    gone,
    put,
    schema_json,
    state_of,
)

ALL = KeyGroupRange(0, 3)


@pytest.fixture
def objects() -> DictObjectStore:
    return DictObjectStore()


def history_of(objects: DictObjectStore) -> TableHistory:
    return TableHistory(TableStore(objects), METADATA)


def compact(table: TableStore, number: int) -> TableCompaction:
    version = table.read_version(number)
    assert version is not None
    file = compact_key_groups(table, version, ALL, 0)
    return TableCompaction(number, tuple(one.name for one in version.state), (file,))


def test_versions_and_what_they_hold(objects: DictObjectStore) -> None:
    query = ScriptedTable(objects)
    first = query.commit(0, put(1, "a", 1))
    second = query.commit(1, put(2, "b", 2))
    history: StateHistory = history_of(objects)
    assert (history.url, history.max_parallelism) == (objects.url, METADATA.max_parallelism)
    assert history.versions() == [0, 1]
    found = history.at(1)
    assert found.info == VersionInfo(1, FIRST_MS + 1000)
    assert found.shape == shape_of(METADATA, second.schema_json)
    assert found.changes == second.changes
    assert found.state == first.changes + second.changes
    (batch,) = history.read(found.changes[0], ALL)
    assert batch.column("id").to_pylist() == [2]
    assert list(history.read(found.changes[0], KeyGroupRange(3, 3))) == []


def test_the_shape_says_how_rows_are_folded() -> None:
    columns = schema_json(name="string", id="long", count="integer")
    shape = shape_of(replace(SEQUENCED, ignore_null_updates=True), columns)
    assert (shape.state, shape.sequenced, shape.ignores_nulls) == ("row", True, True)
    assert shape.columns == ("name", "id", "count")
    assert shape.key_schema_json == schema_json(id="long")
    assert shape.value_schema_json == schema_json(name="string", count="integer")
    plain = shape_of(METADATA, columns)
    assert (plain.sequenced, plain.ignores_nulls) == (False, False)


def test_a_version_that_is_not_there_is_an_error_that_names_those_that_are(
    objects: DictObjectStore,
) -> None:
    ScriptedTable(objects)
    with pytest.raises(VersionNotRetainedError, match="holds no version yet"):
        history_of(objects).at(0)
    query = ScriptedTable(objects)
    for batch in range(3):
        query.commit(batch, put(1, "a", batch))
    objects.delete([name for name in objects.objects if name.endswith("00.json")])
    with pytest.raises(VersionNotRetainedError) as caught:
        history_of(objects).at(7)
    assert (caught.value.version, caught.value.oldest, caught.value.newest) == (7, 1, 2)


def test_what_is_committed_later_is_seen_and_versions_are_read_once(
    objects: DictObjectStore,
) -> None:
    query, history = ScriptedTable(objects), history_of(objects)
    assert history.versions() == []
    query.commit(0, put(1, "a", 1))
    assert history.versions() == [0]
    history.at(0)
    query.commit(1, put(2, "b", 2))
    objects.reads.clear()
    assert history.versions() == [0, 1]
    for _ in range(3):
        history.at(0)
        history.at(1)
    assert objects.reads == ["versions/0000000000000000001.json"]


def test_a_version_that_is_being_written_is_seen_once_it_is_whole(tmp_path: Path) -> None:
    disk = LocalObjectStore(tmp_path / "table")
    query = ScriptedTable(disk)
    query.commit(0, put(1, "a", 1))
    query.commit(1, put(1, "a", 2))
    path = tmp_path / "table" / "versions" / "0000000000000000001.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:20])
    reader = StateReader(TableHistory(TableStore(disk), METADATA))
    assert by_key(reader.read()) == {1: ("a", 1)}
    with pytest.raises(VersionNotRetainedError):
        reader.read(1)
    path.write_bytes(whole)
    assert by_key(reader.read()) == by_key(reader.read(1)) == {1: ("a", 2)}


class TestCompactions:
    def test_a_published_compaction_is_read_and_the_next_commit_adopts_it(
        self, objects: DictObjectStore
    ) -> None:
        query, history = ScriptedTable(objects), history_of(objects)
        for batch in range(3):
            query.commit(batch, put(batch, "a", batch), gone(batch - 1))
        compaction = compact(query.table, 2)
        query.table.publish_compaction(compaction)
        history.versions()
        assert history.at(2).state == compaction.files
        assert len(history.at(2).changes) == 1
        assert len(history.at(1).state) == 2
        assert state_of(objects, 2) == {2: ("a", 2)}
        version = query.commit(3, put(9, "b", 9))
        assert version.state == compaction.files + version.changes
        assert state_of(objects) == {2: ("a", 2), 9: ("b", 9)}

    def test_a_compaction_that_comes_late_is_read_at_later_versions_too(
        self, objects: DictObjectStore
    ) -> None:
        query, history = ScriptedTable(objects), history_of(objects)
        query.commit(0, put(1, "a", 1))
        compaction = compact(query.table, 0)
        later = query.commit(1, put(1, "b", 2))
        query.table.publish_compaction(compaction)
        history.versions()
        assert history.at(1).state == compaction.files + later.changes
        assert state_of(objects, 1) == {1: ("b", 2)}

    def test_a_compaction_that_does_not_fit_any_more_is_ignored(
        self, objects: DictObjectStore
    ) -> None:
        query, history = ScriptedTable(objects), history_of(objects)
        query.commit(0, put(1, "a", 1))
        query.commit(1, put(2, "a", 2))
        merged = compact(query.table, 1).files[0]
        late = compact(query.table, 1)
        replaced = query.publish(2, [], merge=lambda version: (merged,))
        query.table.publish_compaction(late)
        history.versions()
        assert history.at(2).state == replaced.state == (merged,)
        version = query.commit(3, put(3, "a", 3))
        assert version.state == (merged, *version.changes)
        assert state_of(objects) == {n: ("a", n) for n in (1, 2, 3)}

    def test_a_compaction_that_is_deleted_after_it_was_listed_does_not_matter(
        self, objects: DictObjectStore
    ) -> None:
        class CleaningStore(DictObjectStore):
            """Retention deletes a compaction between a reader's listing and its read."""

            def list(self, directory: str) -> Sequence[ObjectInfo]:
                found = [*objects.list(directory)]
                if directory == "compactions":
                    objects.delete([info.name for info in found])
                return found

        query = ScriptedTable(objects)
        query.commit(0, put(1, "a", 1))
        query.table.publish_compaction(compact(query.table, 0))
        cleaning = CleaningStore(objects=objects.objects, modified=objects.modified)
        assert StateReader(TableHistory(TableStore(cleaning), METADATA)).read().num_rows == 1
        assert query.table.compactions() == ()


class TestRetention:
    def committed(self, objects: DictObjectStore, batches: range) -> None:
        query = ScriptedTable(objects)
        for batch in batches:
            query.commit(batch, put(batch, "a", batch))

    def test_changes_since_a_version_that_was_deleted_are_an_error_for_whoever_knew_it(
        self, objects: DictObjectStore
    ) -> None:
        self.committed(objects, range(1))
        reader = StateReader(history_of(objects))
        assert by_key(reader.read(0)) == {0: ("a", 0)}
        self.committed(objects, range(1, 20))
        assert reader.changes(0).num_rows == 19
        retain_versions(objects, TableStore(objects), 4)
        with pytest.raises(VersionNotRetainedError) as caught:
            reader.changes(0)
        assert (caught.value.version, caught.value.oldest, caught.value.newest) == (0, 16, 19)

    def test_a_version_that_was_deleted_is_an_error_for_whoever_knew_it(
        self, objects: DictObjectStore
    ) -> None:
        query = ScriptedTable(objects)
        query.commit(0, put(0, "a", 0))
        reader = StateReader(history_of(objects))
        assert reader.read(0).num_rows == 1
        file = query.write(1, [put(0, "a", 0)], kind="snapshot")
        query.publish(1, [file], merge=lambda version: (file,))
        self.committed(objects, range(2, 20))
        retain_versions(objects, TableStore(objects), 4)
        with pytest.raises(VersionNotRetainedError):
            reader.read(0)

    @pytest.mark.parametrize("deleted", [[0], [1], [1, 3], [0, 2, 3]])
    def test_versions_before_a_gap_are_about_to_be_deleted_and_not_shown(
        self, objects: DictObjectStore, deleted: list[int]
    ) -> None:
        self.committed(objects, range(7))
        objects.delete([version_name(number) for number in deleted])
        reader = StateReader(history_of(objects))
        retained = [*range(max(deleted) + 1, 7)]
        assert [info.version for info in reader.epochs()] == retained
        assert reader.changes(retained[0]).num_rows == len(retained) - 1
        with pytest.raises(VersionNotRetainedError):
            reader.changes(retained[0] - 1)


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns as often as they can, so that races show."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_more_versions_than_are_remembered_are_read_by_several_threads(
    objects: DictObjectStore, hasty_threads: None
) -> None:
    query = ScriptedTable(objects)
    for batch in range(300):
        query.publish(batch, [])
    reader = StateReader(history_of(objects))
    for _ in range(5):
        assert [info.version for info in reader.epochs()] == [*range(300)]


def test_a_history_pickles(tmp_path: Path) -> None:
    disk = LocalObjectStore(tmp_path / "table")
    ScriptedTable(disk).commit(0, put(1, "a", 1))
    history = TableHistory(TableStore(disk), METADATA)
    history.at(0)
    other = pickle.loads(pickle.dumps(history))
    assert by_key(StateReader(other).read()) == {1: ("a", 1)}
