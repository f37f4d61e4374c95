"""A damaged object of a table is an error for every user of the object, and is not changed.

tests/fault/checkpoint_store/test_damaged_tables.py asks all questions of all objects.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from checkpoint_store.errors import (
    CorruptObjectError,
    LostVersionError,
    ObjectMissingError,
    UnsupportedFormatError,
)
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.objects.object_info import ObjectInfo
from checkpoint_store.tables.table_compaction import MergeBounds, merge_files
from checkpoint_store.tables.table_layout import parse_table_file, version_name
from checkpoint_store.tables.table_store import TableCommit, TableStore
from checkpoint_store.tables.table_version import TableCompaction, TableVersion
from tests.support.stores.fake_object_store import DictObjectStore
from tests.support.stores.sealed_documents import of_version
from tests.support.tables.table_rows_of import COLUMNS, METADATA, ScriptedTable, put, state_of


class TestTheTableItself:
    def test_a_table_that_others_make_meanwhile_is_there(self, objects: DictObjectStore) -> None:
        class Racing(DictObjectStore):
            """A store in which another writer creates the table after this writer found no
            table."""

            def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
                if "table.json" not in self.objects:
                    ScriptedTable(objects).commit(0, put(1, "a", 1))
                return super().list(directory, prefix)

        racing = Racing(objects=objects.objects, modified=objects.modified)
        assert TableStore(racing).create(METADATA) == METADATA


class TestVersions:
    def test_one_that_vanishes_after_a_listing_is_an_error(self, objects: DictObjectStore) -> None:
        class Vanishing(DictObjectStore):
            def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
                listed = super().list(directory, prefix)
                self.delete([version_name(1)])
                return listed

        query = ScriptedTable(objects)
        for batch in range(2):
            query.commit(batch, put(1, "a", batch))
        vanishing = Vanishing(objects=objects.objects, modified=objects.modified)
        with pytest.raises(ObjectMissingError, match=version_name(1)):
            TableStore(vanishing).newest()


class TestLostVersions:
    """The newest version is lost, and no listing shows that the version existed."""

    def lost(self, objects: DictObjectStore, batches: int, *, versions: int) -> ScriptedTable:
        """Write `batches` batches, and delete all versions from number `versions` on."""
        query = ScriptedTable(objects)
        for batch in range(batches):
            query.commit(batch, put(batch, "a", batch))
        objects.delete([version_name(number) for number in range(versions, batches)])
        return query

    def write(self, query: ScriptedTable, batch: int, *, after_all: bool = True) -> TableVersion:
        file = query.write(batch, [put(batch, "b", batch)])
        commit = TableCommit(
            query.writer, f"run-of-{batch}", batch, COLUMNS, (file,), after_all=after_all
        )
        return query.table.commit(commit)

    @pytest.mark.parametrize(("versions", "newest"), [(2, 1), (1, 0), (0, None)])
    def test_a_query_whose_batches_are_gone_is_told(
        self, objects: DictObjectStore, versions: int, newest: int | None
    ) -> None:
        query = self.lost(objects, 3, versions=versions)
        with pytest.raises(LostVersionError) as caught:
            self.write(query, 3)
        error = caught.value
        assert (error.name, error.query) == (version_name(versions), "query-a")
        assert (error.batch, error.newest) == (3, newest)
        assert f"run again from batch {versions}" in str(error)

    def test_the_query_may_run_its_batches_again(self, objects: DictObjectStore) -> None:
        query = self.lost(objects, 3, versions=2)
        assert self.write(query, 2).version == 2
        assert self.write(query, 3).version == 3
        assert state_of(objects)[2] == ("b", 2)

    def test_batches_without_files_left_nothing_to_lose(self, objects: DictObjectStore) -> None:
        query = ScriptedTable(objects)
        query.commit(0, put(1, "a", 0))
        query.publish(1, [])
        objects.delete([version_name(1)])
        assert self.write(query, 2).version == 1

    def test_a_query_that_skips_batches_has_not_lost_them(self, objects: DictObjectStore) -> None:
        query = ScriptedTable(objects)
        query.commit(0, put(1, "a", 0))
        # The user's function caught the failure of batch 1.
        query.write(1, [put(1, "a", 1)])
        assert self.write(query, 2, after_all=False).version == 1

    def test_files_of_others_and_of_the_batch_are_no_sign(self, objects: DictObjectStore) -> None:
        query, other = ScriptedTable(objects), ScriptedTable(objects, "query-b")
        other.write(1, [put(1, "b", 1)])
        query.commit(0, put(1, "a", 0))
        query.write(2, [put(1, "a", 2)])
        assert self.write(query, 2).version == 1


def with_compaction(objects: DictObjectStore) -> str:
    """Make a table whose only version was compacted. Return the name of the compaction."""
    query = ScriptedTable(objects)
    version = query.commit(0, put(1, "a", 1))
    names = tuple(file.name for file in version.state)
    query.table.publish_compaction(TableCompaction(0, names, version.state))
    return next(name for name in objects.objects if name.startswith("compactions/"))


@pytest.mark.parametrize("kind", ["table.json", "versions/", "compactions/"])
def test_an_object_of_a_newer_format_is_refused(objects: DictObjectStore, kind: str) -> None:
    with_compaction(objects)
    (name,) = (name for name in objects.objects if name.startswith(kind))
    objects.objects[name] = of_version(2, objects.objects[name])
    uses = (lambda: state_of(objects), lambda: ScriptedTable(objects).commit(1, put(1, "a", 2)))
    for use in uses:
        with pytest.raises(UnsupportedFormatError, match=rf"{name}.* version 2"):
            use()


def test_a_process_passes_over_a_damaged_compaction_says_so_once_and_reads_it_once(
    objects: DictObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    name = with_compaction(objects)
    objects.objects[name] = objects.objects[name][:-1]
    table = TableStore(objects)
    objects.reads.clear()
    for _ in range(3):
        assert table.compactions() == ()
    TableStore(objects).compactions()
    assert objects.reads == [name, name]
    (message,) = caplog.messages
    assert name in message
    assert "it is not needed, delete it" in message


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_commit_does_not_need_the_files_that_it_would_fold(
    objects: DictObjectStore, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    query = ScriptedTable(objects)

    def merge(version: TableVersion) -> tuple[StateHandle, ...]:
        return merge_files(query.table, version, MergeBounds(1 << 30, files=3))

    for batch in range(2):
        query.commit(batch, put(batch, "a", batch))
    name = min(name for name in objects.objects if parse_table_file(name))
    whole = objects.objects[name]
    if damage == "cut":
        objects.objects[name] = whole[:-1]
    else:
        del objects.objects[name]
    version = query.publish(2, [query.write(2, [put(2, "a", 2)])], merge=merge)
    assert len(version.state) == 3
    assert f"version 2 are not folded: {name}" in caplog.text
    with pytest.raises((CorruptObjectError, ObjectMissingError), match=name):
        state_of(objects)
    objects.objects[name] = whole
    assert state_of(objects) == {batch: ("a", batch) for batch in range(3)}
