"""Behaviour of the RocksDB backend alone: files, column families, memory and reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.codecs.state_codecs import PLAIN_FORMS
from spark_state.errors import StateHostError
from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.keyed_state_backend import KeyedStateBackend
from spark_state.rocksdb.database import ColumnFamily, Database
from spark_state.rocksdb.database_options import DatabaseMemory
from spark_state.rocksdb.local_copies import DatabaseHome
from spark_state.rocksdb.rocksdb_keyed_state_backend import RocksDBKeyedStateBackend
from spark_state.state_descriptor import StateDescriptor
from tests.support.eventually import eventually
from tests.support.operators.keyed_state_backend_contract import (
    KEY_GROUPS,
    KEYS,
    LIST,
    MAP,
    VALUE,
    WrittenFiles,
)

TEXT = pa.struct([pa.field("text", pa.string())])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "database"


def backend_in(folder: Path, memory: DatabaseMemory | None = None) -> RocksDBKeyedStateBackend:
    return RocksDBKeyedStateBackend(KEY_GROUPS, KEYS, PLAIN_FORMS, DatabaseHome(folder, memory))


def put(backend: RocksDBKeyedStateBackend, descriptor: StateDescriptor, key: int) -> None:
    state: Any = backend.state(descriptor)
    backend.set_current_key((key,), KEY_GROUPS.start)
    if descriptor is VALUE:
        state.update((key,))
    elif descriptor is LIST:
        state.appendValue((key,))
    else:
        state.updateValue((key,), (key,))


def test_a_closed_backend_leaves_nothing(folder: Path) -> None:
    backend = backend_in(folder)
    put(backend, VALUE, 1)
    backend.seal()
    assert list((folder / "db").glob("*"))
    backend.snapshot().release()
    backend.close()
    backend.close()
    assert not folder.exists()


@pytest.mark.parametrize("is_on_heap", [True, False])
def test_changes_that_say_how_many_keys_are_new_are_applied_without_a_read(
    folder: Path, is_on_heap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = backend_in(folder / "other")
    writer = HeapKeyedStateBackend(KEY_GROUPS, KEYS, PLAIN_FORMS) if is_on_heap else other
    value: Any = writer.state(VALUE)
    changelogs = []
    for put_keys, removed in ((range(10), ()), (range(5, 20), (0, 1)), ((0,), range(10, 20))):
        for key in (*put_keys, *removed):
            writer.set_current_key((key,), KEY_GROUPS.start + key % 2)
            value.clear() if key in removed else value.update((key,))
        changelogs.append(writer.changes())
        writer.seal()
    restored = backend_in(folder / "restored")
    restored.state(VALUE)
    with monkeypatch.context() as patched:
        patched.setattr(ColumnFamily, "get_many", mock.Mock(side_effect=AssertionError("a read")))
        for rows in changelogs:
            restored.apply(rows.to_batches(max_chunksize=3))
    assert list(restored.entries_by_key_group())[:3] == [5, 4, 0]
    assert _rows_of(restored) == _rows_of(writer)
    restored.apply(changelogs[0].replace_schema_metadata(None).to_batches())
    assert list(restored.entries_by_key_group())[:3] == [5, 5, 0]
    other.close()
    restored.close()


def _rows_of(backend: KeyedStateBackend[Any]) -> list[dict[str, Any]]:
    written = WrittenFiles()
    backend.snapshot().write(written)
    return [row for rows, _ in written.files for row in rows.to_pylist()]


def test_a_checkpoint_that_fails_leaves_nothing(folder: Path) -> None:
    backend = backend_in(folder)
    put(backend, VALUE, 1)
    backend.seal()

    def link_some(_: object, checkpoint: str) -> None:
        Path(checkpoint).mkdir()
        (Path(checkpoint) / "CURRENT").touch()
        raise Exception("IO error: No space left on device")

    with (
        mock.patch("spark_state.rocksdb.database.Checkpoint.create_checkpoint", link_some),
        pytest.raises(StateHostError, match="No space left"),
    ):
        backend.incremental_snapshot(())
    assert [path.name for path in folder.iterdir()] == ["db"]
    backend.close()


def test_a_snapshot_outlives_its_backend(folder: Path) -> None:
    backend = backend_in(folder)
    put(backend, VALUE, 1)
    backend.seal()
    snapshot = backend.snapshot()
    backend.close()
    files = WrittenFiles()
    snapshot.write(files)
    assert [rows.num_rows for rows, _ in files.files] == [1]
    assert not folder.exists()


def test_a_dropped_state_loses_its_column_families_when_nobody_can_take_it_back(
    folder: Path,
) -> None:
    backend = backend_in(folder)
    database = backend._database
    for descriptor in (VALUE, LIST, MAP):
        put(backend, descriptor, 1)
    backend.seal()
    backend.drop("list")
    backend.seal()
    assert len(database._open) == 3
    backend.seal()
    assert len(database._open) == 2
    put(backend, LIST, 1)
    assert list(backend.state(LIST).get()) == [(1,)]  # type: ignore[union-attr]


def test_values_are_read_ahead_while_somebody_looks_at_them(folder: Path) -> None:
    backend = backend_in(folder)
    for key in range(8):
        put(backend, VALUE, key)
    backend.seal()
    state: Any = backend.state(VALUE)
    keys = [(key,) for key in range(8)]
    groups = [KEY_GROUPS.start] * 8
    family = backend._states["value"].table.family
    with (
        mock.patch.object(family, "get_many", wraps=family.get_many) as together,
        mock.patch.object(family, "get", wraps=family.get) as alone,
    ):
        for first in (0, 4):
            backend.read_ahead(keys[first : first + 4], groups[:4])
            for key in range(first, first + 4):
                backend.set_current_key((key,), KEY_GROUPS.start)
                assert state.get() == (key,)
        assert (together.call_count, alone.call_count) == (2, 0)
        backend.rollback()
        backend.read_ahead(keys[:4], groups[:4])
        backend.read_ahead(keys[4:], groups[4:])
        assert (together.call_count, alone.call_count) == (3, 0)


def test_large_values_are_read_ahead_as_far_as_some_megabytes_go(folder: Path) -> None:
    backend = backend_in(folder)
    state: Any = backend.state(StateDescriptor("text", "value", TEXT, "{}"))
    keys = [(key,) for key in range(400)]
    groups = [KEY_GROUPS.start] * len(keys)
    for (key,) in keys:
        backend.set_current_key((key,), KEY_GROUPS.start)
        state.update((f"{key:<50000}",))
    backend.seal()
    backend.read_ahead(keys, groups)
    assert 4 << 20 < backend.bytes_on_heap() - 400 * 50_000 < 9 << 20
    family = backend._states["text"].table.family
    with mock.patch.object(family, "get", wraps=family.get) as alone:
        for (key,) in keys:
            backend.set_current_key((key,), KEY_GROUPS.start)
            assert state.get() == (f"{key:<50000}",)
        assert 200 < alone.call_count < 350
    assert backend.bytes_on_heap() > 40_000_000
    backend.forget_what_was_read()
    assert backend.bytes_on_heap() < 21_000_000
    backend.set_current_key((7,), KEY_GROUPS.start)
    assert state.get() == (f"{7:<50000}",)
    backend.close()


def test_a_key_column_may_be_missing(folder: Path) -> None:
    backend = RocksDBKeyedStateBackend(
        KeyGroupRange(0, 0), KeyColumns((), (), ()), PLAIN_FORMS, DatabaseHome(folder)
    )
    state: Any = backend.state(VALUE)
    backend.set_current_key((), 0)
    state.update((7,))
    backend.seal()
    files = WrittenFiles()
    backend.snapshot().write(files)
    assert files.files[0][0]["value"].to_pylist() == [{"n": 7}]


def test_databases_share_a_limit_of_memory(tmp_path: Path) -> None:
    limit = 8 << 20
    memory = DatabaseMemory()
    memory.allow(limit)
    memory.allow(limit // 2)  # another operator allows less
    backends = [backend_in(tmp_path / str(number), memory) for number in range(2)]
    of_text = StateDescriptor("text", "value", TEXT, "{}")
    rounds, keys_of_round = 16, 1000
    for number in range(rounds):
        for backend in backends:
            state: Any = backend.state(of_text)
            for key in range(keys_of_round):
                backend.set_current_key((number * keys_of_round + key,), KEY_GROUPS.start)
                state.update((f"{key:01024d}",))
            backend.seal()
            # RocksDB flushes full tables in the background, and a busy machine delays the flush.
            eventually(lambda: memory.blocks.get_usage() <= limit)
    assert len(backends[0]) == rounds * keys_of_round
    for backend in backends:
        database: Database = backend._database
        assert database.memory_bytes() < limit
        backend.close()
