"""Snapshots upload only a database's new files, and damaged snapshots are refused."""

from __future__ import annotations

import errno
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import spark_state.rocksdb
from checkpoint_store.errors import (
    CorruptObjectError,
    ObjectMissingError,
    UnsupportedFormatError,
)
from checkpoint_store.files import database_readers
from checkpoint_store.files.database_contents import decode_database, encode_database
from checkpoint_store.files.database_file_store import DatabaseFileStore
from checkpoint_store.files.database_readers import DatabaseReaderError
from checkpoint_store.files.document import Source
from checkpoint_store.files.document_body import body_of, decode_handle
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle, bytes_of
from checkpoint_store.files.working_directory import WorkingDirectoryError
from checkpoint_store.object_names import parse_object_name
from spark_state.errors import StateHostError
from spark_state.rocksdb import database, database_reader
from spark_state.rocksdb.rocksdb_keyed_state_backend import RocksDBKeyedStateBackend
from tests.support.operators.keyed_state_backend_contract import (
    KEY_GROUPS,
    LIST,
    MAP,
    VALUE,
    States,
    key_group_of,
)
from tests.support.stores.sealed_documents import of_version
from tests.support.stores.stored_databases import StoredDatabases

STATES = (VALUE, LIST, MAP)
MANY = 2000
LONGEST_ENTRY = 4 << 10


@pytest.fixture
def stored(tmp_path: Path) -> StoredDatabases:
    return StoredDatabases(folder=tmp_path)


@pytest.fixture
def backend(stored: StoredDatabases) -> Iterator[RocksDBKeyedStateBackend]:
    backend = stored.new(KEY_GROUPS)
    yield backend
    backend.close()


def put(backend: RocksDBKeyedStateBackend, keys: range, number: int = 0) -> None:
    """Give each key a value, a list and a map, and seal the epoch."""
    value, elements, entries = (backend.state(descriptor) for descriptor in STATES)
    for key in keys:
        backend.set_current_key((key,), key_group_of(key))
        value.update((number,))  # type: ignore[union-attr]
        elements.appendValue((number,))  # type: ignore[union-attr]
        entries.updateValue((number,), (key,))  # type: ignore[union-attr]
    backend.seal()


def contents(backend: RocksDBKeyedStateBackend, keys: range = range(MANY)) -> Any:
    return States(backend).content(keys)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_second_snapshot_uploads_only_what_is_new(
    stored: StoredDatabases, backend: RocksDBKeyedStateBackend, restarts: bool
) -> None:
    put(backend, range(MANY))
    first = stored.snapshot(backend)
    writer = backend
    if restarts:
        writer, rest = stored.restored(first, STATES, KEY_GROUPS)
        assert rest == ()
        assert contents(writer) == contents(backend)
        assert len(writer) == len(backend)
    put(writer, range(10), number=1)
    second = stored.snapshot(writer, first)
    shared = {part.name for part in first[0].parts} & {part.name for part in second[0].parts}
    assert shared, "the tables of the first one are in the second one"
    assert 3 * (bytes_of((*first, *second)) - bytes_of(first)) < bytes_of(first)
    assert {part.name.rpartition("/")[2] for part in (*first[0].parts, *second[0].parts)} == (
        stored.tables()
    )
    writer.close()


def test_what_no_barrier_names_is_uploaded_again(
    stored: StoredDatabases, backend: RocksDBKeyedStateBackend
) -> None:
    put(backend, range(MANY))
    unnamed = stored.snapshot(backend)
    again = stored.snapshot(backend)
    assert not {part.name for part in unnamed[0].parts} & {part.name for part in again[0].parts}


def test_a_snapshot_has_the_state_of_its_moment(
    stored: StoredDatabases, backend: RocksDBKeyedStateBackend
) -> None:
    put(backend, range(100))
    before = contents(backend)
    snapshot = backend.incremental_snapshot(())
    put(backend, range(100), number=7)
    restored, _ = stored.restored(snapshot.write(stored), STATES, KEY_GROUPS)
    assert contents(restored) == before
    restored.close()


def test_an_empty_state_is_no_file(
    stored: StoredDatabases, backend: RocksDBKeyedStateBackend, tmp_path: Path
) -> None:
    backend.state(VALUE)
    assert stored.snapshot(backend) == ()
    assert not (tmp_path / "store").exists()
    assert not [*tmp_path.glob("*/checkpoint-*")]


def test_a_snapshot_that_is_given_up_leaves_nothing(
    backend: RocksDBKeyedStateBackend, tmp_path: Path
) -> None:
    put(backend, range(10))
    snapshot = backend.incremental_snapshot(())
    assert [*tmp_path.glob("*/checkpoint-*")]
    snapshot.release()
    snapshot.release()
    assert not [*tmp_path.glob("*/checkpoint-*")]


def test_pieces_of_one_database_are_taken_and_what_is_between_them_is_not(
    stored: StoredDatabases, backend: RocksDBKeyedStateBackend
) -> None:
    put(backend, range(100))
    (whole,) = stored.snapshot(backend)
    pieces = [replace(whole, key_groups=KeyGroupRange(*ends)) for ends in ((4, 5), (8, 10))]
    restored, _ = stored.restored(pieces, STATES, KEY_GROUPS)
    groups = {4, 5, 8, 9, 10}
    expected = {
        of_key: held
        for of_key, held in contents(backend, range(100)).items()
        if key_group_of(of_key[1]) in groups
    }
    assert contents(restored, range(100)) == expected
    restored.close()


def test_a_state_of_a_later_epoch_takes_nothing_from_a_database(
    stored: StoredDatabases, backend: RocksDBKeyedStateBackend
) -> None:
    put(backend, range(10))
    (handle,) = stored.snapshot(backend)
    restored, _ = stored.restored([replace(handle, epoch=-1)], STATES, KEY_GROUPS)
    assert contents(restored) == {}
    assert len(restored) == 0
    put(restored, range(3), number=5)
    again, _ = stored.restored(stored.snapshot(restored), STATES, KEY_GROUPS)
    assert contents(again) == contents(restored)
    for opened in (restored, again):
        opened.close()


def test_a_state_that_nobody_registers_is_given_up(
    stored: StoredDatabases, backend: RocksDBKeyedStateBackend
) -> None:
    put(backend, range(10))
    restored, _ = stored.restored(stored.snapshot(backend), (VALUE,), KEY_GROUPS)
    assert set(contents(restored)) == {("value", key) for key in range(10)}
    restored.close()


def test_a_database_of_another_schema_is_left_to_be_read_row_by_row(
    stored: StoredDatabases, backend: RocksDBKeyedStateBackend
) -> None:
    put(backend, range(10))
    handles = stored.snapshot(backend)
    wider = pa.struct([*VALUE.value_type, pa.field("more", pa.string())])
    restored, rest = stored.restored(handles, (replace(VALUE, value_type=wider),), KEY_GROUPS)
    assert rest == handles
    batches = stored.databases.read(handles[0], KEY_GROUPS)
    restored.apply(batches, ["value"])
    state: Any = restored.state(replace(VALUE, value_type=wider))
    restored.set_current_key((3,), key_group_of(3))
    assert state.get() == (0, None)
    restored.close()


def test_rows_are_read_as_snapshots_have_them(
    stored: StoredDatabases, backend: RocksDBKeyedStateBackend
) -> None:
    put(backend, range(100))
    backend.snapshot(KeyGroupRange(6, 9)).write(stored)
    (handle,) = stored.snapshot(backend)
    read = pa.Table.from_batches(stored.databases.read(handle, KeyGroupRange(6, 9)))
    assert read.to_pylist() == stored.files[0][0].to_pylist()
    narrowed = replace(handle, key_groups=KeyGroupRange(4, 5))
    assert [*stored.databases.read(narrowed, KeyGroupRange(6, 9))] == []


@pytest.fixture
def handle(stored: StoredDatabases, backend: RocksDBKeyedStateBackend) -> StateHandle:
    put(backend, range(10))
    (handle,) = stored.snapshot(backend)
    return handle


@pytest.mark.parametrize("damage", ["cut", "changed", "deleted"])
@pytest.mark.parametrize("kind", ["database", "table"])
def test_damage_is_told_and_leaves_nothing(
    stored: StoredDatabases, handle: StateHandle, kind: str, damage: str, tmp_path: Path
) -> None:
    name = handle.name if kind == "database" else handle.parts[0].name
    path = tmp_path / "store" / name
    match damage:
        case "cut":
            path.write_bytes(path.read_bytes()[:-1])
        case "changed":
            path.write_bytes(path.read_bytes().replace(b"e", b"f", 1))
        case "deleted":
            path.unlink()
    error = ObjectMissingError if damage == "deleted" else CorruptObjectError
    with pytest.raises(error, match=name):
        stored.restored([handle], STATES, KEY_GROUPS)
    with pytest.raises(error, match=name):
        [*stored.databases.read(handle, KEY_GROUPS)]
    assert not (tmp_path / "backend-1").exists()


def test_a_full_local_disk_is_told_and_leaves_nothing(
    stored: StoredDatabases, handle: StateHandle, tmp_path: Path
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with (
        mock.patch.object(Path, "write_bytes", side_effect=full),
        pytest.raises(StateHostError, match=r"No space left.*localDirectory"),
    ):
        stored.restored([handle], STATES, KEY_GROUPS)
    assert not (tmp_path / "backend-1").exists()


@pytest.mark.parametrize("method", ["write_bytes", "mkdir"])
def test_a_full_temporary_directory_is_told_to_readers_and_has_nothing_afterwards(
    stored: StoredDatabases,
    handle: StateHandle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    full = OSError(errno.ENOSPC, "No space left on device")
    with (
        mock.patch.object(Path, method, side_effect=full),
        pytest.raises(WorkingDirectoryError, match=rf"{handle.name}.* {temporary} .*No space left"),
    ):
        [*stored.databases.read(handle, KEY_GROUPS)]
    assert not [*temporary.iterdir()]
    assert sum(batch.num_rows for batch in stored.databases.read(handle, KEY_GROUPS)) == 30


def test_rocksdb_that_cannot_open_files_to_read_them_tells_where_and_the_way_out(
    stored: StoredDatabases, handle: StateHandle
) -> None:
    refused = Exception("IO error: No space left on device: While open a file for appending")
    with (
        mock.patch.object(database, "Rdict", side_effect=refused),
        pytest.raises(StateHostError, match=r"cowstate-work-.*No space left.*TMPDIR"),
    ):
        [*stored.databases.read(handle, KEY_GROUPS)]


def test_a_reader_without_rocksdict_is_told_what_to_install(
    stored: StoredDatabases, handle: StateHandle
) -> None:
    ours = [name for name in sys.modules if name.startswith("spark_state.rocksdb")]
    with (
        mock.patch.dict(sys.modules, {"rocksdict": None}),
        # The failing import would otherwise replace the package by a package without modules.
        mock.patch.object(spark_state, "rocksdb", spark_state.rocksdb),
    ):
        for name in ours:
            del sys.modules[name]
        with pytest.raises(DatabaseReaderError, match=r"pip install 'cowstate\[rocksdb\]'") as told:
            [*stored.databases.read(handle, KEY_GROUPS)]
    assert "rocksdict" in str(told.value)


def test_a_reader_that_is_not_installed_as_a_package_is_told(
    stored: StoredDatabases, handle: StateHandle
) -> None:
    with (
        mock.patch.object(database_readers, "GROUP", "nobody.has_this"),
        pytest.raises(DatabaseReaderError, match="no installed package reads it"),
    ):
        [*stored.databases.read(handle, KEY_GROUPS)]


def test_rows_of_a_later_release_are_refused(
    stored: StoredDatabases, handle: StateHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_reader, "ROWS_VERSION", 0)
    message = "rows of version 1, and this release reads version 0"
    with pytest.raises(StateHostError, match=message) as told:
        [*stored.databases.read(handle, KEY_GROUPS)]
    assert f"{handle.name} in {stored.databases.store.url} is a database" in str(told.value)


def test_contents_are_read_as_they_were_written(
    stored: StoredDatabases, handle: StateHandle
) -> None:
    held = stored.databases.contents(handle)
    source = Source("file:///s", handle.name)
    assert decode_database(encode_database(held), source) == held
    assert [state.name for state in held.states] == ["value", "list", "map"]
    assert decode_handle(body_of(handle), parse_object_name) == handle


def test_contents_of_a_later_release_are_refused(
    stored: StoredDatabases, handle: StateHandle
) -> None:
    newer = of_version(2, encode_database(stored.databases.contents(handle)))
    with pytest.raises(UnsupportedFormatError, match="version 2"):
        decode_database(newer, Source("file:///s", handle.name))


def test_files_that_are_no_database_are_told(
    stored: StoredDatabases, handle: StateHandle, tmp_path: Path
) -> None:
    held = stored.databases.contents(handle)
    broken = replace(held, small_files={**held.small_files, "CURRENT": b"MANIFEST-999999\n"})
    with (
        mock.patch.object(DatabaseFileStore, "contents", return_value=broken),
        pytest.raises(StateHostError, match="RocksDB"),
    ):
        stored.restored([handle], STATES, KEY_GROUPS)
    assert not (tmp_path / "backend-1").exists()


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "..", ""])
@pytest.mark.parametrize("where", ["tables", "small_files"])
def test_a_file_outside_of_the_folder_is_damage(
    stored: StoredDatabases, handle: StateHandle, where: str, name: str
) -> None:
    held = stored.databases.contents(handle)
    changed = (
        replace(held, tables=(name,))
        if where == "tables"
        else replace(held, small_files={name: b""})
    )
    with pytest.raises(CorruptObjectError, match="is not the name of a file"):
        decode_database(encode_database(changed), Source("file:///s", handle.name))


def test_the_small_files_stay_small_however_many_snapshots_there_were(
    stored: StoredDatabases, backend: RocksDBKeyedStateBackend
) -> None:
    lengths = []
    for number in range(200):
        put(backend, range(2), number)
        snapshot = backend.incremental_snapshot(())
        files = snapshot._checkpoint.small_files()
        lengths.append(sum(map(len, files.values())))
        snapshot.release()
    # RocksDB checks the manifest's length before adding an entry, not after.
    assert max(lengths) < (64 << 10) + LONGEST_ENTRY
    assert min(lengths[100:]) < 32 << 10, "the manifest never began anew"
