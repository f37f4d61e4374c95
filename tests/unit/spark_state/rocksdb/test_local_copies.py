"""Local recovery does not download tables that are already on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.objects.local_object_store import LocalObjectStore
from spark_state.rocksdb import local_copies
from spark_state.rocksdb.local_copies import LocalCopies
from spark_state.rocksdb.rocksdb_keyed_state_backend import RocksDBKeyedStateBackend
from tests.support.operators.keyed_state_backend_contract import KEY_GROUPS
from tests.support.stores.stored_databases import StoredDatabases
from tests.unit.spark_state.rocksdb.test_incremental_snapshots import STATES, contents, put


@pytest.fixture
def copies(tmp_path: Path) -> LocalCopies:
    return LocalCopies(tmp_path / "copies", "one")


@pytest.fixture
def stored(tmp_path: Path, copies: LocalCopies) -> StoredDatabases:
    return StoredDatabases(folder=tmp_path, copies=copies)


@pytest.fixture
def backend(stored: StoredDatabases) -> Iterator[RocksDBKeyedStateBackend]:
    backend = stored.new(KEY_GROUPS)
    put(backend, range(200))
    yield backend
    backend.close()


def kept(copies: LocalCopies) -> set[str]:
    return {path.name for path in (copies.folder / copies.owner).iterdir()}


def names_of(handles: tuple[StateHandle, ...]) -> set[str]:
    return {part.name.rpartition("/")[2] for handle in handles for part in handle.parts}


def restored_contents(stored: StoredDatabases, handles: tuple[StateHandle, ...]) -> object:
    restored, _ = stored.restored(handles, STATES, KEY_GROUPS)
    try:
        return contents(restored)
    finally:
        restored.close()


def test_a_restore_downloads_no_table_that_a_snapshot_left_here(
    stored: StoredDatabases, backend: RocksDBKeyedStateBackend, copies: LocalCopies
) -> None:
    handles = stored.snapshot(backend)
    assert kept(copies) == names_of(handles)
    expected = contents(backend)
    backend.close()
    read: list[str] = []
    get = LocalObjectStore.get

    def note(self: LocalObjectStore, name: str) -> bytes:
        read.append(name)
        return get(self, name)

    with mock.patch.object(LocalObjectStore, "get", note):
        assert restored_contents(stored, handles) == expected
    assert read == [handles[0].name]


def test_copies_are_those_of_the_latest_snapshot(
    stored: StoredDatabases, backend: RocksDBKeyedStateBackend, copies: LocalCopies
) -> None:
    first = stored.snapshot(backend)
    again = stored.snapshot(backend)
    assert kept(copies) == names_of(again)
    assert not names_of(first) & names_of(again), "the first one was named by no barrier"
    put(backend, range(3), number=2)
    third = stored.snapshot(backend, again)
    assert kept(copies) == names_of(third)


def test_what_was_downloaded_is_kept(
    stored: StoredDatabases, backend: RocksDBKeyedStateBackend, tmp_path: Path
) -> None:
    handles = stored.snapshot(backend)
    elsewhere = replace(stored, copies=LocalCopies(tmp_path / "other disk", "one"))
    assert elsewhere.copies is not None
    assert restored_contents(elsewhere, handles) == contents(backend)
    assert kept(elsewhere.copies) == names_of(handles)


def test_another_owner_finds_them_too(
    stored: StoredDatabases, backend: RocksDBKeyedStateBackend, copies: LocalCopies
) -> None:
    (handle,) = stored.snapshot(backend)
    other = replace(copies, owner="two")
    assert all(other.find(part) is not None for part in handle.parts)


@pytest.mark.parametrize("damage", ["cut", "changed", "deleted"])
def test_a_copy_that_is_not_whole_is_downloaded_again_and_replaced(
    stored: StoredDatabases,
    backend: RocksDBKeyedStateBackend,
    copies: LocalCopies,
    caplog: pytest.LogCaptureFixture,
    damage: str,
) -> None:
    handles = stored.snapshot(backend)
    expected = contents(backend)
    backend.close()
    for path in (copies.folder / copies.owner).iterdir():
        data = path.read_bytes()
        path.unlink()
        if damage != "deleted":
            path.write_bytes(data[:-1] if damage == "cut" else data[:-1] + b"?")
    assert restored_contents(stored, handles) == expected
    assert ("is not the table that was uploaded" in caplog.text) == (damage != "deleted")
    assert names_of(handles)
    assert all(copies.find(part) is not None for handle in handles for part in handle.parts)


def test_a_copy_that_cannot_be_read_is_deleted(
    stored: StoredDatabases,
    backend: RocksDBKeyedStateBackend,
    copies: LocalCopies,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (handle,) = stored.snapshot(backend)

    def fail(path: Path) -> str:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(local_copies, "_checksum", fail)
    assert [copies.find(part) for part in handle.parts] == [None] * len(handle.parts)
    assert not kept(copies)


def test_a_copy_that_goes_before_it_is_taken_is_downloaded(
    stored: StoredDatabases, backend: RocksDBKeyedStateBackend, copies: LocalCopies
) -> None:
    handles = stored.snapshot(backend)
    with mock.patch.object(LocalCopies, "find", return_value=copies.folder / "gone"):
        assert restored_contents(stored, handles) == contents(backend)


def test_a_disk_that_refuses_copies_costs_a_warning(
    stored: StoredDatabases,
    backend: RocksDBKeyedStateBackend,
    copies: LocalCopies,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with mock.patch.object(local_copies, "_link", side_effect=OSError("No space left on device")):
        handles = stored.snapshot(backend)
    assert "has no local copies" in caplog.text
    assert not (copies.folder / copies.owner).exists()
    assert restored_contents(stored, handles) == contents(backend)
