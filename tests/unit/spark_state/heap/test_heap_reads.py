"""A backend on the heap copies nothing for reads beside a snapshot, and counts what it changed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap.heap_element_table import HeapElementTable
from spark_state.heap.heap_keyed_state_backend import (
    HeapKeyedStateBackend,
)
from spark_state.heap.state_map_entry import StateMapEntry
from spark_state.keyed_state import full_snapshot
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.processor.rows import STATE_FORMS
from spark_state.state_descriptor import StateKind
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
