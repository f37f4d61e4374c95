"""Retention deletes a table's unneeded versions, files and compactions, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from checkpoint_store.errors import CorruptObjectError, LostFilesError, StoreAccessError
from checkpoint_store.files.epoch_file_name import is_sign_of_life
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.sign_of_life import SignsOfLife
from checkpoint_store.objects import passed_over
from checkpoint_store.objects.deletion import sweep_orphans
from checkpoint_store.objects.object_info import UNPUBLISHED
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.tables.table_compaction import MergeBounds, compact_key_groups, merge_files
from checkpoint_store.tables.table_layout import (
    BatchDirectory,
    parse_table_file,
    version_name,
)
from checkpoint_store.tables.table_orphans import TableOrphans
from checkpoint_store.tables.table_retention import TableRetention
from checkpoint_store.tables.table_store import TableStore
from checkpoint_store.tables.table_version import TableCompaction
from checkpoint_store.tables.unnamed_files import LOOK_AFTER_SECONDS, shown_alive
from tests.support.stores.fake_object_store import DictObjectStore, RefusingObjectStore
from tests.support.tables.table_rows_of import ScriptedTable, Values, put, reader_of, state_of

MERGED = MergeBounds(bytes=1 << 30, files=3)


@pytest.fixture(autouse=True)
def nothing_told() -> None:
    """Forget that the process has warned about damage."""
    passed_over._tell.cache_clear()


def written(versions: int, *, merging: bool = True) -> DictObjectStore:
    """Write versions that each change key 0 and add a key; files are folded three at a time."""
    objects = DictObjectStore()
    query = ScriptedTable(objects)
    for batch in range(versions):
        file = query.write(batch, [put(0, "zero", batch), put(batch + 1, "a", batch)])
        query.publish(
            batch,
            [file],
            merge=(lambda version: merge_files(query.table, version, MERGED)) if merging else None,
        )
    return objects


def without_rows(versions: int) -> DictObjectStore:
    """Write versions that change nothing."""
    objects = DictObjectStore()
    query = ScriptedTable(objects)
    for batch in range(versions):
        query.publish(batch, [])
    return objects


def expected(version: int) -> dict[int, Values]:
    return {0: ("zero", version)} | {n + 1: ("a", n) for n in range(version + 1)}


def compact(objects: DictObjectStore, number: int) -> TableCompaction:
    """Publish a compaction of version `number`."""
    table = TableStore(objects)
    table.metadata()
    version = table.read_version(number)
    names = tuple(file.name for file in version.state)
    files = [compact_key_groups(table, version, KeyGroupRange(p, p + 1), p) for p in (0, 2)]
    compaction = TableCompaction(number, names, tuple(files))
    table.publish_compaction(compaction)
    return compaction


def retain(objects: DictObjectStore, min_to_retain: int) -> int:
    return TableRetention(objects, TableStore(objects)).retain(min_to_retain)


def sweep(objects: DictObjectStore, grace_seconds: float, now: float) -> list[str]:
    return sweep_orphans(objects, TableOrphans(objects, TableStore(objects)), grace_seconds, now)


def named(objects: DictObjectStore) -> set[str]:
    """Return the names of the files of all existing versions and compactions."""
    table = TableStore(objects)
    versions = [table.read_version(number) for number in table.versions()]
    files = {name for version in versions if version for name in version.object_names()}
    return files | {file.name for compaction in table.compactions() for file in compaction.files}


def files_of(objects: DictObjectStore) -> set[str]:
    return {name for name in objects.objects if parse_table_file(name)}


class TestRetainingVersions:
    @pytest.mark.parametrize("merging", [False, True])
    @pytest.mark.parametrize("min_to_retain", [2, 3, 15])
    def test_the_newest_stay_and_all_else_goes(self, min_to_retain: int, merging: bool) -> None:
        objects = written(30, merging=merging)
        before = len(objects.objects)
        deleted = retain(objects, min_to_retain)
        assert len(objects.objects) == before - deleted < before
        retained = range(30 - min_to_retain, 30)
        assert TableStore(objects).versions() == [*retained]
        for version in retained:
            assert state_of(objects, version) == expected(version)
        changes = reader_of(objects).changes(retained[0])
        assert changes["_commit_version"].to_pylist().count(29) == 3
        assert files_of(objects) == named(objects)
        assert sweep(objects, 0.0, 1.0) == []

    def test_a_few_expired_versions_are_left_for_later(self) -> None:
        objects = written(13)
        before = dict(objects.objects)
        assert retain(objects, 4) == 0
        assert objects.objects == before
        assert retain(objects, 3) > 0
        assert TableStore(objects).versions() == [10, 11, 12]

    def test_the_oldest_go_first_so_that_there_never_is_a_gap(self) -> None:
        objects = written(30)
        seen: list[list[int]] = []

        class Watched(DictObjectStore):
            def delete(self, names: Sequence[str]) -> None:
                super().delete(names)
                seen.append(TableStore(objects).versions())

        watched = Watched(objects=objects.objects, modified=objects.modified)
        TableRetention(watched, TableStore(watched)).retain(4)
        assert seen[:26] == [[*range(number, 30)] for number in range(1, 27)]
        assert seen[26:] == [[26, 27, 28, 29]] * len(seen[26:])

    def test_of_very_many_some_are_left_for_later(self) -> None:
        objects = without_rows(250)
        left = []
        while retain(objects, 10):
            left.append(len(TableStore(objects).versions()))
        assert left == [150, 50, 10]

    def test_compactions_of_deleted_versions_go_and_their_files_as_versions_name_them(self) -> None:
        objects = written(5, merging=False)
        adopted = compact(objects, 4)
        query = ScriptedTable(objects)
        for batch in range(5, 20):
            query.commit(batch, put(0, "zero", batch), put(batch + 1, "a", batch))
        kept = compact(objects, 18)
        assert [file.key_groups.start for file in kept.files] == [0, 2]
        retain(objects, 2)
        assert TableStore(objects).compactions() == (kept,)
        # Version 5 began with the compaction's files, and all later versions still use these files.
        assert {file.name for file in adopted.files} <= files_of(objects)
        for version in (18, 19):
            assert state_of(objects, version) == expected(version)
        assert sweep(objects, 0.0, 1.0) == []
        query.commit(20, put(0, "zero", 20), put(21, "a", 20))
        for batch in range(21, 40):
            query.commit(batch, put(0, "zero", batch), put(batch + 1, "a", batch))
        retain(objects, 2)
        assert files_of(objects) == named(objects)
        assert not {file.name for file in adopted.files} & files_of(objects)
        assert {file.name for file in kept.files} <= files_of(objects)
        assert state_of(objects) == expected(39)


def damage(objects: DictObjectStore, name: str) -> bytes:
    """Damage the first byte of an object. Return the object's former bytes."""
    whole = objects.objects[name]
    objects.objects[name] = b"?" + whole[1:]
    return whole


class TestDamagedVersions:
    def test_an_older_one_is_kept_for_a_damaged_one(self, caplog: pytest.LogCaptureFixture) -> None:
        objects = written(30)
        whole = {name: damage(objects, name) for name in map(version_name, (25, 26, 27))}
        for _ in range(2):
            retain(objects, 4)
        assert TableStore(objects).versions() == [*range(24, 30)]
        assert caplog.text.count(f"passed over: {version_name(26)}") == 1
        objects.objects.update(whole)
        for version in range(24, 30):
            assert state_of(objects, version) == expected(version)

    def test_a_damaged_version_does_not_stop_the_retention_of_very_many(self) -> None:
        objects = without_rows(400)
        damage(objects, version_name(100))
        while retain(objects, 2):
            pass
        assert TableStore(objects).versions() == [398, 399]

    def test_a_newer_one_is_the_oldest_if_no_older_one_can_be_read(self) -> None:
        objects = without_rows(130)
        for number in range(105):
            damage(objects, version_name(number))
        retain(objects, 10)
        assert TableStore(objects).versions() == [*range(105, 130)]

    def test_nothing_is_deleted_if_none_can_be_read_that_may_be_the_oldest(self) -> None:
        objects = written(16)
        for number in range(13):
            damage(objects, version_name(number))
        before = dict(objects.objects)
        with pytest.raises(CorruptObjectError, match=version_name(12)):
            retain(objects, 4)
        assert objects.objects == before

    @pytest.mark.parametrize("spoil", [lambda data: b"?" + data[1:], lambda data: data[:50]])
    def test_an_expired_damaged_version_is_deleted(self, spoil: Callable[[bytes], bytes]) -> None:
        objects = written(30)
        objects.objects[version_name(7)] = spoil(objects.objects[version_name(7)])
        assert retain(objects, 4) > 0
        assert TableStore(objects).versions() == [26, 27, 28, 29]
        sweep(objects, 0.0, 1.0)
        assert files_of(objects) == named(objects)
        assert state_of(objects) == expected(29)


class TestSweepingOrphans:
    def test_only_files_that_nothing_names_and_that_are_old_are_deleted(self) -> None:
        objects = written(6)
        query = ScriptedTable(objects, "killed-query")
        objects.now = 100.0
        orphan = query.write(9, [put(1, "killed", 1)]).name
        objects.now = 200.0
        young = query.write(10, [put(1, "running", 1)]).name
        before = named(objects)
        assert sweep(objects, grace_seconds=100.0, now=250.0) == [orphan]
        assert files_of(objects) == before | {young}
        assert sweep(objects, grace_seconds=50.0, now=250.0) == []
        assert sweep(objects, grace_seconds=49.0, now=250.0) == [young]
        assert state_of(objects) == expected(5)

    @pytest.mark.parametrize("spoil", [damage, lambda objects, name: objects.objects.pop(name)])
    def test_no_file_goes_while_a_version_is_lost_or_damaged(
        self, spoil: Callable[[DictObjectStore, str], bytes], caplog: pytest.LogCaptureFixture
    ) -> None:
        objects = written(6)
        ScriptedTable(objects, "killed-query").write(9, [put(1, "killed", 1)])
        objects.put(f"{UNPUBLISHED}/0123", b"begun")
        whole = spoil(objects, version_name(3))
        before = files_of(objects)
        assert sweep(objects, 0.0, 1.0) == [f"{UNPUBLISHED}/0123"]
        assert files_of(objects) == before
        assert "are kept, because a version is missing or damaged" in caplog.text
        objects.objects[version_name(3)] = whole
        assert state_of(objects, 3) == expected(3)

    def test_names_of_others_and_files_of_unknown_age_are_left_alone(self) -> None:
        objects = written(2)
        objects.put("data/killed-query/0000000000000000000/_SUCCESS", b"")
        objects.now = None
        ScriptedTable(objects, "killed-query").write(0, [put(1, "a", 1)])
        before = dict(objects.objects)
        assert sweep(objects, 0.0, 1e12) == []
        assert objects.objects == before

    def test_a_file_that_is_committed_meanwhile_is_not_deleted(self) -> None:
        objects = written(2)
        query = ScriptedTable(objects)
        file = query.write(2, [put(0, "zero", 2), put(3, "a", 2)])

        class CommittingTable(TableStore):
            """A table whose old file is committed while the compactions are listed."""

            def compactions(self) -> tuple[TableCompaction, ...]:
                query.publish(2, [file])
                return super().compactions()

        assert (
            sweep_orphans(objects, TableOrphans(objects, CommittingTable(objects)), 0.0, 1.0) == []
        )
        assert state_of(objects) == expected(2)

    def test_a_batch_stays_whole_while_something_is_written_into_it(self) -> None:
        objects = written(1)
        query = ScriptedTable(objects)
        first = query.write(1, [put(7, "a", 7)])
        objects.now = 86_000.0
        second = query.write(1, [put(8, "b", 8)], subtask=1)
        assert sweep(objects, 86_400.0, now=90_000.0) == []
        query.publish(1, [first, second], written_since=0.0)
        assert state_of(objects)[7] == ("a", 7)

    def test_a_batch_that_nobody_writes_into_any_more_goes_with_its_signs_of_life(self) -> None:
        objects = written(1)
        query = ScriptedTable(objects, "killed-job")
        file = query.write(0, [put(7, "a", 7)])
        objects.now = 86_000.0
        sign = f"{BatchDirectory('killed-job', 0)}/alive-00000-{0:019d}-0123456789ab.json"
        objects.put(sign, b"")
        assert sweep(objects, 86_400.0, now=172_400.0) == []
        assert sweep(objects, 86_400.0, now=172_401.0) == [sign, file.name]


def test_a_gap_among_the_retained_versions_keeps_no_files_of_expired_versions() -> None:
    objects = written(30)
    lost = TableStore(objects).read_version(27)
    assert lost is not None
    objects.delete([version_name(27)])
    assert retain(objects, 10)
    table = TableStore(objects)
    kept = [version for n in table.versions() if (version := table.read_version(n))]
    named = frozenset[str]().union(*(version.object_names() for version in [*kept, lost]))
    assert {name for name in objects.objects if name.startswith("data/")} <= named


def signs(objects: ObjectStore) -> SignsOfLife:
    """The signs of life of a task."""
    return SignsOfLife(objects, str(BatchDirectory("job", 3)), 1, 2)


class TestFilesThatNoVersionNames:
    def test_a_task_that_works_for_long_has_the_last_signs_of_life_until_it_ends(self) -> None:
        third = threading.Event()

        class Watched(DictObjectStore):
            def delete(self, names: Sequence[str]) -> None:
                super().delete(names)
                assert len(self.objects) <= 2
                third.set()  # the third sign replaces the first

        objects = Watched()
        with shown_alive(signs(objects), 0.001):
            third.wait()
            assert all(is_sign_of_life(name) for name in list(objects.objects))
        assert objects.objects == {}

    def test_signs_reach_from_a_task_to_the_commit(self) -> None:
        """A long task wrote its file early, and the commit takes long, too."""
        put_once = threading.Event()

        class Watched(DictObjectStore):
            def put(self, name: str, data: bytes) -> None:
                super().put(name, data)
                put_once.set()

        objects = Watched()
        with shown_alive(signs(objects), 900.0, until_commit=True):
            pass
        assert objects.objects == {}, "a short task needs none"
        with shown_alive(signs(objects), 0.001, until_commit=True):
            put_once.wait()
            objects.now = 3_500.0
        assert max(time or 0 for time in objects.modified.values()) == 3_500.0
        with shown_alive(signs(objects), 900.0, at_once=True):
            assert len(objects.objects) == 3
        assert len(objects.objects) == 2

    def test_a_task_needs_no_right_to_delete(self) -> None:
        third = threading.Event()

        class Watched(DictObjectStore):
            def put(self, name: str, data: bytes) -> None:
                super().put(name, data)
                if len(self.objects) == 3:
                    third.set()

            def delete(self, names: Sequence[str]) -> None:
                raise StoreAccessError(self.url, "no right to delete")

        with shown_alive(signs(Watched()), 0.001):
            third.wait()

    def test_a_task_goes_on_when_a_sign_cannot_be_put(self) -> None:
        tried = threading.Event()

        def refuse(operation: str, name: str) -> Exception | None:
            tried.set()
            return StoreAccessError("dict://store", "no right")

        objects = RefusingObjectStore(DictObjectStore(), refuse)
        with shown_alive(signs(objects), 0.001):
            tried.wait()

    def test_a_commit_of_files_that_are_gone_fails_and_leaves_the_table_as_it_was(self) -> None:
        objects = written(1)
        query = ScriptedTable(objects)
        files = [query.write(1, [put(7, "a", 7)], subtask=task) for task in range(3)]
        objects.delete([file.name for file in files[:2]])
        with pytest.raises(LostFilesError, match=r"1 other files.*query query-a"):
            query.publish(1, files, written_since=query.now() - LOOK_AFTER_SECONDS - 1)
        assert state_of(objects) == expected(0)

    def test_a_commit_lists_no_files_that_were_written_lately(self) -> None:
        objects = written(1)
        query = ScriptedTable(objects)
        file = query.write(1, [put(2, "a", 1)])
        objects.listings.clear()
        query.publish(1, [file], written_since=query.now())
        assert not [name for name in objects.listings if name.startswith("data")]

    def test_a_compaction_whose_files_are_gone_is_not_published(self) -> None:
        objects = written(3)
        compaction = compact(objects, 2)
        objects.delete([compaction.files[0].name])
        with pytest.raises(LostFilesError, match="the compaction"):
            TableStore(objects).publish_compaction(compaction)
