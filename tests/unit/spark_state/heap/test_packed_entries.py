"""Rows of large value states stay Arrow in a restore, and become entries at their first use."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap import heap_keyed_state_backend, packed_entries
from spark_state.heap.heap_keyed_state_backend import (
    LEAST_PACKED_ROWS,
    HeapKeyedStateBackend,
)
from spark_state.heap.heap_state_table import HeapStateTable
from spark_state.heap.packed_entries import PackedEntries
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.processor.rows import STATE_FORMS
from tests.support.operators.heap_table_model import check_packs
from tests.support.operators.keyed_state_backend_contract import WrittenFiles
from tests.support.operators.subtasks import SCHEMAS
from tests.unit.spark_state.heap.test_heap_reads import backend_with, entries_of


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
            kept = [batch[name].nbytes for name in ("key", "_key_group", "state")]
            assert backend.bytes_on_heap() == before + sum(kept)

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


UTC = UTC
NOT_NULL = pa.struct([pa.field("a", pa.int64(), nullable=False)])
NULLABLE = pa.struct([pa.field("a", pa.int64())])
KEYS_OF_TYPES: list[tuple[Any, list[Any]]] = [
    (pa.float64(), [math.nan, 0.0, None, 1.5]),
    (pa.float32(), [math.nan, 0.0, None, 1.5]),
    (pa.decimal128(10, 2), [Decimal("1.00"), None, Decimal("-3.10")]),
    (pa.timestamp("us", "UTC"), [datetime(2020, 1, 1, tzinfo=UTC), None]),
    (pa.timestamp("us"), [datetime(2020, 1, 1), None]),
    (pa.date32(), [date(2020, 1, 1), None]),
    (pa.duration("us"), [timedelta(1), None]),
    (pa.bool_(), [True, False, None]),
    (pa.binary(), [b"", b"a\0", b"a", None]),
    (pa.string(), ["", "a\0", "a", None, "x" * 100]),
    (pa.list_(pa.float64()), [(), (1.0,), (math.nan, 0.0), (None,), None]),
    (NULLABLE, [(1,), (None,), None]),
]


def backend_of_keys(*types: Any) -> tuple[HeapKeyedStateBackend, Any]:
    names = tuple(f"k{number}" for number in range(len(types)))
    columns = KeyColumns(names, types, tuple(map(str, types)))
    backend = HeapKeyedStateBackend(KeyGroupRange(0, 3), columns, STATE_FORMS)
    return backend, backend.state(SCHEMAS.keyed("value", "state", ("n bigint",)))


def changes_of(types: tuple[Any, ...], keys: list[tuple[Any, ...]], value: int) -> pa.Table:
    backend, state = backend_of_keys(*types)
    for number, key in enumerate(keys):
        backend.set_current_key(key, number % 4)
        state.update((value + number,))
    return backend.changes()


@pytest.fixture
def packs_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap_keyed_state_backend, "LEAST_PACKED_ROWS", 0)


@pytest.mark.usefixtures("packs_all_rows")
@pytest.mark.parametrize(("key_type", "values"), KEYS_OF_TYPES, ids=repr)
def test_keys_of_every_type_are_found_with_their_last_value(
    key_type: Any, values: list[Any]
) -> None:
    keys = [(value,) for value in values]
    chain = [changes_of((key_type,), keys, value) for value in (0, 100)]
    backend, state = backend_of_keys(key_type)
    backend.restore((rows.to_batches(2), None) for rows in chain)
    assert entries_of(backend) == []
    for number, key in enumerate(keys):
        backend.set_current_key(key, number % 4)
        assert state.get() == (100 + number,)


@pytest.mark.usefixtures("packs_all_rows")
def test_a_key_without_columns_and_keys_whose_types_changed_are_found() -> None:
    backend, state = backend_of_keys()
    backend.restore([(changes_of((), [()], 5).to_batches(), None)])
    backend.set_current_key((), 0)
    assert state.get() == (5,)
    chain = [
        changes_of((of_key,), [((1,),)], value) for value, of_key in enumerate([NOT_NULL, NULLABLE])
    ]
    backend, state = backend_of_keys(NULLABLE)
    backend.restore((rows.to_batches(), None) for rows in chain)
    backend.set_current_key(((1,),), 0)
    assert state.get() == (1,)


@pytest.mark.parametrize("fails", ["put", "compact"])
def test_no_entry_is_lost_if_memory_ends_while_entries_are_unpacked(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = LEAST_PACKED_ROWS
    backend, _ = restored(rows)
    keys, groups = [(key,) for key in range(rows)], [key % 4 for key in range(rows)]
    table: Any = backend._states["state"].table
    calls = iter(range(rows))

    def without_memory(*_: Any) -> None:
        if fails == "compact" or next(calls) == 1000:
            raise MemoryError
        original(*_)

    owner, name = (PackedEntries, "_set") if fails == "compact" else (type(table._map), "put")
    original: Any = getattr(owner, name)
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, without_memory)
        with pytest.raises(MemoryError):
            backend.read_ahead(keys[: rows * 4 // 5], groups[: rows * 4 // 5])
    check_packs(table)
    assert len(backend) == rows
    backend.read_ahead(keys, groups)
    assert sorted(entry.key for entry in entries_of(backend)) == keys


@pytest.mark.usefixtures("packs_all_rows")
def test_a_restore_of_some_key_groups_and_a_drop_that_is_undone() -> None:
    source, _ = restored(50)
    files = WrittenFiles()
    source.snapshot().write(files)
    ((table, _),) = files.files
    of_some = table.filter(pa.compute.less(table["_key_group"], 2))
    backend, _state = backend_with("value", "n bigint")
    backend.restore([(of_some.to_batches(), None)])
    assert list(backend.entries_by_key_group()) == [13, 13, 0, 0]
    backend.drop("state")
    assert len(backend) == 0
    backend.rollback()
    assert list(backend.entries_by_key_group()) == [13, 13, 0, 0]
    held = backend._states["state"].table
    assert isinstance(held, HeapStateTable)
    check_packs(held)
