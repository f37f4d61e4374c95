"""What was left half-written, or was damaged: passed over, replaced, waited for, or an error."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpoint_store.errors import (
    ConflictingWriterError,
    CorruptObjectError,
    LostVersionError,
    UnsupportedFormatError,
)
from checkpoint_store.object_store import LocalObjectStore
from checkpoint_store.table_codec import encode_table
from checkpoint_store.table_layout import version_name
from checkpoint_store.table_store import TableStore
from checkpoint_store.table_version import TableCompaction
from tests.support.fake_object_store import DictObjectStore
from tests.support.table_rows_of import (
    METADATA,
    ScriptedTable,
    put,
    reader_of,
    state_of,
)


def newer_format(data: bytes) -> bytes:
    """The document as a later release would write it."""

    def canonical(value: object) -> bytes:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return text.encode()

    document = {**json.loads(data), "version": 2}
    del document["checksum"]
    return canonical({**document, "checksum": hashlib.sha256(canonical(document)).hexdigest()})


def flipped(data: bytes, position: int) -> bytes:
    damaged = bytearray(data)
    damaged[position] ^= 0x01
    return bytes(damaged)


@pytest.fixture
def objects() -> DictObjectStore:
    return DictObjectStore()


@pytest.fixture
def disk(tmp_path: Path) -> LocalObjectStore:
    return LocalObjectStore(tmp_path / "table")


class TestTheTableItself:
    @pytest.mark.parametrize("length", [0, 1, 60, -1])
    def test_a_beginning_left_by_a_killed_creator_is_no_table_and_is_replaced(
        self, objects: DictObjectStore, length: int
    ) -> None:
        objects.put("table.json", encode_table(METADATA)[:length])
        assert TableStore(objects).metadata() is None
        TableStore(objects).create(METADATA)
        assert objects.objects["table.json"] == encode_table(METADATA)

    @pytest.mark.parametrize("position", [0, 40, 120])
    def test_a_damaged_table_is_an_error_and_stays(
        self, objects: DictObjectStore, position: int
    ) -> None:
        damaged = flipped(encode_table(METADATA), position)
        objects.put("table.json", damaged)
        for opening in (TableStore(objects).metadata, lambda: TableStore(objects).create(METADATA)):
            with pytest.raises(CorruptObjectError, match=r"table\.json"):
                opening()
        assert objects.objects == {"table.json": damaged}

    def test_a_table_of_a_newer_format_is_refused(self, objects: DictObjectStore) -> None:
        objects.put("table.json", newer_format(encode_table(METADATA)))
        for opening in (TableStore(objects).metadata, lambda: TableStore(objects).create(METADATA)):
            with pytest.raises(UnsupportedFormatError, match=r"table\.json .* version 2"):
                opening()


LENGTHS: dict[str, Callable[[bytes], int]] = {
    "empty": lambda data: 0,
    "half": lambda data: len(data) // 2,
    "up to the end of the body": lambda data: data.index(b',"checksum"'),
    "all but the last byte": lambda data: len(data) - 1,
}


@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS)
class TestTornNewestVersion:
    """Left by a writer that was killed while it wrote on a local disk."""

    def torn(self, disk: LocalObjectStore, length: Callable[[bytes], int]) -> None:
        """Versions 0 and 1 are whole, 2 is not; all are of batches of query-a."""
        query = ScriptedTable(disk)
        for batch in range(3):
            query.commit(batch, put(1, "a", batch), put(batch, "b", batch))
        path = disk.root / version_name(2)
        path.write_bytes(path.read_bytes()[: length(path.read_bytes())])

    def test_readers_pass_it_over(
        self, disk: LocalObjectStore, length: Callable[[bytes], int]
    ) -> None:
        self.torn(disk, length)
        newest = TableStore(disk).newest()
        assert newest is not None
        assert newest.version == 1
        assert [info.version for info in reader_of(disk).epochs()] == [0, 1]
        assert state_of(disk) == {0: ("b", 0), 1: ("b", 1)}

    def test_the_batch_that_comes_again_replaces_it(
        self, disk: LocalObjectStore, length: Callable[[bytes], int]
    ) -> None:
        self.torn(disk, length)
        version = ScriptedTable(disk).commit(2, put(1, "a", 2), put(2, "c", 2))
        assert version.version == 2
        assert state_of(disk) == {0: ("b", 0), 1: ("a", 2), 2: ("c", 2)}

    def test_a_later_batch_says_what_is_lost(
        self, disk: LocalObjectStore, length: Callable[[bytes], int]
    ) -> None:
        self.torn(disk, length)
        left = (disk.root / version_name(2)).read_bytes()
        with pytest.raises(LostVersionError) as caught:
            ScriptedTable(disk).commit(3, put(1, "a", 3))
        error = caught.value
        assert (error.name, error.query) == (version_name(2), "query-a")
        assert (error.batch, error.newest) == (3, 1)
        assert (disk.root / version_name(2)).read_bytes() == left

    def test_another_query_is_refused_as_ever(
        self, disk: LocalObjectStore, length: Callable[[bytes], int]
    ) -> None:
        self.torn(disk, length)
        for batch in (0, 5):
            with pytest.raises(ConflictingWriterError, match="query query-a; query query-b"):
                ScriptedTable(disk, "query-b").commit(batch, put(1, "b", 0))


class TestTornVersions:
    def test_a_torn_first_version_is_replaced(self, disk: LocalObjectStore) -> None:
        query = ScriptedTable(disk)
        disk.put(version_name(0), b"")
        assert query.table.newest() is None
        assert query.commit(0, put(1, "a", 1)).version == 0
        assert state_of(disk) == {1: ("a", 1)}

    def test_a_torn_version_without_any_before_it_is_not_replaced(
        self, disk: LocalObjectStore
    ) -> None:
        query = ScriptedTable(disk)
        disk.put(version_name(3), b"")
        with pytest.raises(LostVersionError, match="no batch of it"):
            query.commit(0, put(1, "a", 1))

    def test_a_batch_job_replaces_what_an_earlier_one_left(self, disk: LocalObjectStore) -> None:
        ScriptedTable(disk, "batch-a", is_query=False).commit(0, put(1, "a", 1))
        disk.put(version_name(1), b'{"bo')
        later = ScriptedTable(disk, "batch-b", is_query=False)
        assert later.commit(0, put(2, "b", 2)).version == 1
        assert state_of(disk) == {1: ("a", 1), 2: ("b", 2)}

    def test_a_version_that_is_being_written_is_waited_for(
        self, objects: DictObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        query = ScriptedTable(objects, "batch-a", is_query=False)
        query.commit(0, put(1, "a", 1))
        whole = objects.objects[version_name(0)]
        objects.objects[version_name(0)] = whole[:9]

        def written(seconds: float) -> None:
            objects.objects[version_name(0)] = whole

        monkeypatch.setattr("checkpoint_store.table_store.time.sleep", written)
        other = ScriptedTable(objects, "batch-b", is_query=False)
        assert other.commit(0, put(2, "b", 2)).version == 1
        assert state_of(objects) == {1: ("a", 1), 2: ("b", 2)}

    def test_no_beginning_of_a_version_is_taken_for_one(self, objects: DictObjectStore) -> None:
        query = ScriptedTable(objects)
        query.commit(0, put(1, "a", 1))
        whole = objects.objects[version_name(0)]
        for length in range(len(whole)):
            objects.objects[version_name(0)] = whole[:length]
            assert query.table.read_version(0) is None


class TestDamage:
    def test_every_changed_byte_of_a_version_is_an_error_for_readers_and_writers(
        self, objects: DictObjectStore
    ) -> None:
        query = ScriptedTable(objects)
        query.commit(0, put(1, "a", 1))
        whole = objects.objects[version_name(0)]
        # In the last bytes it looks as if it were not written to its end: it is passed over.
        for position in range(0, whole.index(b'"format"'), 7):
            objects.objects[version_name(0)] = flipped(whole, position)
            with pytest.raises(CorruptObjectError) as caught:
                query.table.newest()
            assert (caught.value.name, caught.value.epoch) == (version_name(0), 0)
        with pytest.raises(CorruptObjectError):
            query.commit(1, put(1, "a", 2))
        with pytest.raises(CorruptObjectError):
            state_of(objects)

    def test_a_version_of_a_newer_format_is_refused(self, objects: DictObjectStore) -> None:
        query = ScriptedTable(objects)
        query.commit(0, put(1, "a", 1))
        objects.objects[version_name(0)] = newer_format(objects.objects[version_name(0)])
        for use in (lambda: state_of(objects), lambda: query.commit(1, put(1, "a", 2))):
            with pytest.raises(UnsupportedFormatError, match=r"versions/.*version 2"):
                use()

    @pytest.mark.parametrize(
        ("damage", "error"),
        [
            (lambda data: flipped(data, 60), CorruptObjectError),
            (lambda data: newer_format(data), UnsupportedFormatError),
        ],
    )
    def test_a_damaged_compaction_is_an_error_for_readers_and_writers(
        self, objects: DictObjectStore, damage: Callable[[bytes], bytes], error: type[Exception]
    ) -> None:
        query = ScriptedTable(objects)
        version = query.commit(0, put(1, "a", 1))
        names = tuple(file.name for file in version.state)
        query.table.publish_compaction(TableCompaction(0, names, version.state))
        (name,) = (name for name in objects.objects if name.startswith("compactions/"))
        objects.objects[name] = damage(objects.objects[name])
        for use in (lambda: state_of(objects), lambda: query.commit(1, put(1, "a", 2))):
            with pytest.raises(error, match="compactions/"):
                use()

    def test_a_half_written_compaction_is_not_published(self, objects: DictObjectStore) -> None:
        query = ScriptedTable(objects)
        version = query.commit(0, put(1, "a", 1))
        query.table.publish_compaction(TableCompaction(0, ("data/other",), version.state))
        (name,) = (name for name in objects.objects if name.startswith("compactions/"))
        assert len(query.table.compactions()) == 1
        whole = objects.objects[name]
        for length in range(len(whole)):
            objects.objects[name] = whole[:length]
            assert TableStore(objects).compactions() == ()
