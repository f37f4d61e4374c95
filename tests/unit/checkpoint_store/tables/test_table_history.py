"""A reader of a table sees whole versions while writers commit, compact and clean up."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from checkpoint_store.errors import (
    CorruptObjectError,
    VersionMissingError,
    VersionNotRetainedError,
)
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.objects.object_info import ObjectInfo
from checkpoint_store.state_reader import StateReader
from checkpoint_store.states.state_cache import StateCache
from checkpoint_store.tables.table_compaction import MergeBounds, compact_key_groups, merge_files
from checkpoint_store.tables.table_history import TableHistory
from checkpoint_store.tables.table_layout import version_name
from checkpoint_store.tables.table_retention import TableRetention
from checkpoint_store.tables.table_store import TableStore
from checkpoint_store.tables.table_version import TableCompaction, TableVersion
from tests.support.stores.fake_object_store import DictObjectStore
from tests.support.tables.table_rows_of import (
    FIRST_MS,
    METADATA,
    ScriptedTable,
    by_key,
    gone,
    put,
    schema_json,
    state_of,
)

ALL = KeyGroupRange(0, 3)


def history_of(objects: DictObjectStore) -> TableHistory:
    return TableHistory(TableStore(objects), METADATA)


def compact(table: TableStore, number: int) -> TableCompaction:
    version = table.read_version(number)
    file = compact_key_groups(table, version, ALL, 0)
    return TableCompaction(number, tuple(handle.name for handle in version.state), (file,))


class TestDamage:
    def damaged(self, objects: DictObjectStore, *numbers: int) -> StateReader:
        """Return a reader of a table with versions 0 to 4, where versions `numbers` are cut."""
        query = ScriptedTable(objects)
        for batch in range(5):
            query.commit(batch, put(1, "a", batch))
        for number in numbers:
            objects.objects[version_name(number)] = objects.objects[version_name(number)][:-1]
        return StateReader(history_of(objects))

    def test_the_newest_is_an_error_and_never_an_older_one(self, objects: DictObjectStore) -> None:
        reader = self.damaged(objects, 4)
        for ask in (reader.read, reader.schema, reader.versions, lambda: reader.changes(3)):
            with pytest.raises(CorruptObjectError, match=version_name(4)):
                ask()
        assert by_key(reader.read(3)) == {1: ("a", 3)}

    def test_others_are_left_out_of_the_list_of_versions(
        self, objects: DictObjectStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        reader = self.damaged(objects, 1, 2)
        assert [info.version for info in reader.versions()] == [0, 3, 4]
        assert version_name(1) in caplog.text
        assert version_name(2) in caplog.text
        for version in (1, 2):
            with pytest.raises(CorruptObjectError, match=version_name(version)):
                reader.read(version)

    def test_a_time_before_all_readable_ones_is_not_known(self, objects: DictObjectStore) -> None:
        reader = self.damaged(objects, 0, 1)
        with pytest.raises(CorruptObjectError, match=version_name(1)):
            reader.latest_at(FIRST_MS + 1999)
        assert reader.latest_at(FIRST_MS + 2000) == 2

    def test_a_memory_of_states_needs_no_versions_between(self, objects: DictObjectStore) -> None:
        self.damaged(objects)
        memory = StateCache()
        reader = StateReader(history_of(objects), memory)
        assert by_key(reader.read(1)) == {1: ("a", 1)}
        objects.objects[version_name(3)] = b""
        later = StateReader(history_of(objects), memory)
        assert by_key(later.read(4)) == {1: ("a", 4)}
        objects.delete([version_name(3)])
        assert by_key(StateReader(history_of(objects), memory).read(2)) == {1: ("a", 2)}
        assert by_key(StateReader(history_of(objects), memory).read(4)) == {1: ("a", 4)}


class TestCompactions:
    def test_a_compaction_is_read_from_its_version_on_and_the_next_commit_adopts_it(
        self, objects: DictObjectStore
    ) -> None:
        query, history = ScriptedTable(objects), history_of(objects)
        for batch in range(3):
            later = query.commit(batch, put(batch, "a", batch), gone(batch - 1))
        compaction = compact(query.table, 1)
        query.table.publish_compaction(compaction)
        history.versions()
        assert history.at(1).state == compaction.files
        assert history.at(2).state == compaction.files + later.changes
        assert (len(history.at(1).changes), len(history.at(0).state)) == (1, 1)
        assert [state_of(objects, version) for version in (1, 2)] == [{1: ("a", 1)}, {2: ("a", 2)}]
        version = query.commit(3, put(9, "b", 9))
        assert version.state == compaction.files + later.changes + version.changes
        assert state_of(objects) == {2: ("a", 2), 9: ("b", 9)}

    def test_a_compaction_deleted_after_listing_is_no_loss(self, objects: DictObjectStore) -> None:
        class CleaningStore(DictObjectStore):
            """A store in which retention deletes a compaction between a reader's listing and the
            read."""

            def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
                listed = [*objects.list(directory)]
                if directory == "compactions":
                    objects.delete([info.name for info in listed])
                return listed

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

    def test_changes_since_a_deleted_version_are_an_error(self, objects: DictObjectStore) -> None:
        self.committed(objects, range(1))
        reader = StateReader(history_of(objects))
        assert by_key(reader.read(0)) == {0: ("a", 0)}
        self.committed(objects, range(1, 20))
        assert reader.changes(0).num_rows == 19
        TableRetention(objects, TableStore(objects)).retain(4)
        with pytest.raises(VersionNotRetainedError) as caught:
            reader.changes(0)
        assert (caught.value.version, caught.value.oldest, caught.value.newest) == (0, 16, 19)

    def test_a_deleted_version_is_an_error_for_who_knew_it(self, objects: DictObjectStore) -> None:
        query = ScriptedTable(objects)
        query.commit(0, put(0, "a", 0))
        reader = StateReader(history_of(objects))
        assert reader.read(0).num_rows == 1
        file = query.write(1, [put(0, "a", 0)], kind="snapshot")
        query.publish(1, [file], merge=lambda version: (file,))
        self.committed(objects, range(2, 20))
        TableRetention(objects, TableStore(objects)).retain(4)
        with pytest.raises(VersionNotRetainedError):
            reader.read(0)

    @pytest.mark.parametrize("deleted", [[1], [3, 4], [1, 3]])
    def test_a_version_that_is_missing_between_others_is_named_and_hides_none(
        self, objects: DictObjectStore, deleted: list[int]
    ) -> None:
        self.committed(objects, range(7))
        objects.delete([version_name(number) for number in deleted])
        reader = StateReader(history_of(objects))
        there = [number for number in range(7) if number not in deleted]
        assert [info.version for info in reader.versions()] == there
        for version in there:
            assert by_key(reader.read(version)) == {n: ("a", n) for n in range(version + 1)}
        for version in deleted:
            with pytest.raises(VersionMissingError, match=version_name(version)) as caught:
                reader.read(version)
            assert (caught.value.oldest, caught.value.newest) == (0, 6)
            before, after = caught.value.between
            assert before < version < after
            assert {before, after} <= {*there}
        last = max(deleted)
        for start in (None, 0, min(deleted) - 1):
            with pytest.raises(VersionMissingError, match="Restore versions/"):
                reader.changes(start)
        assert reader.changes(last + 1).num_rows == 6 - last - 1
        assert reader.changes(0, min(deleted) - 1).num_rows == min(deleted) - 1


def test_fields_of_structs_are_read_by_name_whatever_their_order(objects: DictObjectStore) -> None:
    def columns(*names: str) -> str:
        place = json.loads(schema_json(**dict.fromkeys(names, "double")))
        return schema_json(id="long", place=place)

    def fold(version: TableVersion) -> tuple[StateHandle, ...]:
        return merge_files(query.table, version, MergeBounds(1 << 30, files=2))

    query = ScriptedTable(objects)
    for batch, names in enumerate([("lat", "lon"), ("lon", "lat"), ("lon", "lat")]):
        place = {"lat": 10.0 + batch, "lon": 20.0}
        file = query.write(batch, [put(batch, place), put(7, place)], columns(*names))
        query.publish(batch, [file], columns(*names), merge=fold if batch == 2 else None)
    newest = query.table.newest()
    (folded,) = newest.state
    assert folded.kind == "snapshot"
    latitudes = {0: 10.0, 1: 11.0, 2: 12.0, 7: 12.0}
    expected = {id: ({"lat": lat, "lon": 20.0},) for id, lat in latitudes.items()}
    assert state_of(objects) == expected
    changes = StateReader(history_of(objects)).changes(0, 1).to_pylist()
    assert [(row["id"], row["place"]["lat"], row["_change_type"]) for row in changes] == [
        (1, 11.0, "insert"),
        (7, 10.0, "update_preimage"),
        (7, 11.0, "update_postimage"),
    ]
