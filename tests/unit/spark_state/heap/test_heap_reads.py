"""A backend on the heap copies nothing for reads beside a snapshot, and counts what it changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap import heap_keyed_state_backend, packed_entries
from spark_state.heap.heap_element_table import HeapElementTable
from spark_state.heap.heap_keyed_state_backend import (
    LEAST_PACKED_ROWS,
    HeapKeyedStateBackend,
)
from spark_state.heap.state_map_entry import StateMapEntry
from spark_state.keyed_state import full_snapshot
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.processor.rows import STATE_FORMS
from spark_state.state_descriptor import StateKind
from tests.support.operators.heap_table_model import check_packs
from tests.support.operators.keyed_state_backend_contract import WrittenFiles
from tests.support.operators.subtasks import SCHEMAS

KEYS = 1000
GROUPS = KeyGroupRange(0, 3)


def backend_with(kind: StateKind, *schemas: str) -> tuple[HeapKeyedStateBackend, Any]:
    columns = KeyColumns(("key",), (pa.int64(),), ("long",))
    backend = HeapKeyedStateBackend(GROUPS, columns, STATE_FORMS)
    return backend, backend.state(SCHEMAS.keyed(kind, "state", schemas))


def entries_of(backend: HeapKeyedStateBackend) -> list[StateMapEntry[Any, Any]]:
    """Return all entry objects of the maps."""
    table: Any = backend._states["state"].table
    maps = table._maps._maps if isinstance(table, HeapElementTable) else table._entries
    entries = []
    for key_group in range(4):
        for head in maps.map_for(key_group).primary_table:
            entry = head
            while entry is not None:
                entries.append(entry)
                entry = entry.next
    return entries


@pytest.mark.parametrize("kind", ["value", "list", "map"])
def test_a_thousand_reads_after_a_snapshot_copy_no_entry_and_no_state(kind: StateKind) -> None:
    schemas = ("n bigint", "m bigint") if kind == "map" else ("n bigint",)
    backend, state = backend_with(kind, *schemas)
    write = {
        "value": lambda n: state.update((n,)),
        "list": lambda n: state.put([(n,), (n + 1,)]),
        "map": lambda n: state.updateValue((n,), (n + 1,)),
    }[kind]
    read = {
        "value": lambda n: state.get() == (n,),
        "list": lambda n: [*state.get()] == [(n,), (n + 1,)],
        "map": lambda n: state.getValue((n,)) == (n + 1,),
    }[kind]
    for key in range(KEYS):
        backend.set_current_key((key,), key % 4)
        write(key)
    backend.seal()
    before = entries_of(backend)
    states = [entry.state for entry in before]
    assert len(before) == KEYS
    snapshot = backend.snapshot()
    for key in range(KEYS):
        backend.set_current_key((key,), key % 4)
        assert state.exists()
        assert read(key)
    after = entries_of(backend)
    assert [id(entry) for entry in after] == [id(entry) for entry in before]
    assert [id(entry.state) for entry in after] == [id(held) for held in states]
    snapshot.release()


@pytest.mark.parametrize(
    ("rows_of_file", "files"),
    [(1, [(0, 0), (1, 1), (2, 2), (3, 3)]), (300, [(0, 1), (2, 3)]), (10_000, [(0, 3)])],
)
def test_a_snapshot_is_written_as_files_of_some_key_groups_each(
    rows_of_file: int, files: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_snapshot, "ROWS_OF_FILE", rows_of_file)
    backend, state = backend_with("value", "n bigint")
    for key in range(KEYS):
        backend.set_current_key((key,), key % 4)
        state.update((key,))
    written = WrittenFiles()
    handles = backend.snapshot().write(written)
    assert [(h.key_groups.start, h.key_groups.end) for h in handles] == files
    for table, key_groups in written.files:
        rows = table.to_pylist()
        assert {row["_key_group"] for row in rows} == set(key_groups)
        assert rows == sorted(rows, key=lambda row: (row["_key_group"], row["key"]))
    keys = [key for table, _ in written.files for key in table["key"].to_pylist()]
    assert sorted(keys) == list(range(KEYS))
    assert all(entry.entry_version == 0 for entry in entries_of(backend))


def test_an_epoch_counts_all_elements_that_it_puts_anew() -> None:
    """So the removal of expired states keeps pace."""
    backend, state = backend_with("list", "n bigint")
    for _ in range(2):
        for key in range(3):
            backend.set_current_key((key,), key)
            state.put([(element,) for element in range(50)])
        assert backend.number_of_changes() >= 3 * 50
        backend.seal()
    assert backend.number_of_changes() == 0


def set_key(backend: HeapKeyedStateBackend, key: int) -> None:
    backend.set_current_key((key,), key % 4)


def restored(rows: int) -> tuple[HeapKeyedStateBackend, Any]:
    """Return a backend and its state, restored from a snapshot with so many rows. Key 0 was looked
    up before the restore."""
    backend, state = backend_with("value", "n bigint")
    for key in range(rows):
        set_key(backend, key)
        state.update((key,))
    files = WrittenFiles()
    backend.snapshot().write(files)
    other, of_other = backend_with("value", "n bigint")
    set_key(other, 0)
    assert of_other.get() is None
    other.restore((table.to_batches(5000), None) for table, _ in files.files)
    assert len(other) == rows
    return other, of_other


def test_a_large_restore_makes_an_entry_of_a_key_at_its_first_use() -> None:
    rows = LEAST_PACKED_ROWS
    packed, state = restored(rows)
    eager, _ = restored(rows - 1)
    assert entries_of(packed) == []
    assert len(entries_of(eager)) == rows - 1
    assert packed.memory_bytes() < eager.memory_bytes() / 2
    for key in (7, 0):
        set_key(packed, key)
        assert state.get() == (key,)
    packed.read_ahead([(key,) for key in range(5, 9)], [key % 4 for key in range(5, 9)])
    assert sorted(entry.key[0] for entry in entries_of(packed)) == [0, 5, 6, 7, 8]
    assert packed.number_of_changes() == 0
    assert len(packed) == rows


def test_rows_that_were_used_leave_the_memory() -> None:
    rows = LEAST_PACKED_ROWS
    backend, _ = restored(rows)
    table: Any = backend._states["state"].table
    packed_bytes = table._packs[0].memory_bytes()
    used = range(rows * 4 // 5)
    backend.read_ahead([(key,) for key in used], [key % 4 for key in used])
    assert table._packs[0].memory_bytes() < packed_bytes / 4
    check_packs(table)
    backend.read_ahead([(key,) for key in range(rows)], [key % 4 for key in range(rows)])
    assert table._packs == []
    assert len(entries_of(backend)) == rows


def test_a_snapshot_has_the_entries_that_are_used_while_it_is_written() -> None:
    rows = LEAST_PACKED_ROWS
    backend, _ = restored(rows)
    snapshot = backend.snapshot()
    backend.read_ahead([(key,) for key in range(100)], [key % 4 for key in range(100)])
    files = WrittenFiles()
    snapshot.write(files)
    keys = [key for table, _ in files.files for key in table["key"].to_pylist()]
    assert sorted(keys) == [*range(rows)]


def test_keys_of_the_same_hash_are_different_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap_keyed_state_backend, "LEAST_PACKED_ROWS", 0)
    monkeypatch.setattr(
        packed_entries, "key_hashes", lambda rows, _: np.zeros(rows.num_rows, np.uint64)
    )
    backend, state = restored(50)
    other, of_other = backend_with("value", "n bigint")
    set_key(other, 3)
    of_other.update((-3,))
    backend.apply(other.changes().to_batches())
    for key in range(50):
        set_key(backend, key)
        assert state.get() == (-3 if key == 3 else key,)


def test_rows_that_a_restore_has_read_count_as_memory() -> None:
    source, _ = restored(LEAST_PACKED_ROWS)
    files = WrittenFiles()
    source.snapshot().write(files)
    backend, _ = backend_with("value", "n bigint")
    ((table, _),) = files.files

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in table.to_batches(LEAST_PACKED_ROWS // 2):
            before = backend.bytes_on_heap()
            yield batch
            assert backend.bytes_on_heap() == before + batch.nbytes

    backend.restore([(batches(), None)])
    assert len(backend) == LEAST_PACKED_ROWS


def test_a_state_of_which_everything_was_deleted_is_empty_after_a_restore() -> None:
    source, state = restored(LEAST_PACKED_ROWS)
    files = WrittenFiles()
    source.snapshot().write(files)
    for key in range(LEAST_PACKED_ROWS):
        set_key(source, key)
        state.clear()
    chain = [*(table for table, _ in files.files), source.changes()]
    backend, of_backend = backend_with("value", "n bigint")
    backend.restore((table.to_batches(), None) for table in chain)
    assert len(backend) == sum(backend.entries_by_key_group()) == 0
    set_key(backend, 5)
    assert of_backend.get() is None
    assert backend.snapshot().write(WrittenFiles()) == ()
