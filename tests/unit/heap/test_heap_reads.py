"""What reading a state costs while a snapshot is open: nothing, for states are shared with it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from spark_state.heap.state_map_entry import StateMapEntry
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.processor.rows import STATE_FORMS
from spark_state.state_descriptor import StateKind
from tests.support.subtasks import describe

KEYS = 1000
GROUPS = KeyGroupRange(0, 3)


def backend_with(kind: StateKind, *schemas: str) -> tuple[HeapKeyedStateBackend, Any]:
    columns = KeyColumns(("key",), (pa.int64(),), ("long",))
    backend = HeapKeyedStateBackend(GROUPS, columns, STATE_FORMS)
    return backend, backend.state(describe(kind, "state", schemas))


def entries_of(backend: HeapKeyedStateBackend) -> list[StateMapEntry[Any, Any, Any]]:
    """All entries of the maps, as objects."""
    table = backend._tables["state"]
    found = []
    for key_group in range(4):
        for head in table._entries.map_for(key_group).primary_table:
            entry = head
            while entry is not None:
                found.append(entry)
                entry = entry.next
    return found


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
    assert [id(entry.state) for entry in after] == [id(one) for one in states]
    snapshot.release()
