"""Reading a range of keys gives the right rows, and reads no file without rows in the range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_store.files.key_bounds import ValueRange, may_hold
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.state_reader import StateReader
from checkpoint_store.tables.table_history import TableHistory
from checkpoint_store.tables.table_store import TableStore
from checkpoint_store.tables.table_version import TableMetadata
from tests.support.examples import examples
from tests.support.stores.fake_object_store import DictObjectStore
from tests.support.tables.table_rows_of import (
    METADATA,
    SEQUENCED,
    Row,
    ScriptedTable,
    by_key,
    gone,
    put,
)


class WatchedHistory(TableHistory):
    """A table history that notes the files it reads."""

    def read(self, handle: StateHandle, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
        files_read.append(handle)
        return super().read(handle, key_groups)


files_read: list[StateHandle] = []
ids = st.integers(-9, 9)
rows = st.builds(
    lambda id, n, at: put(id, "x", n, sequence=at) if n else gone(id, sequence=at),
    *(ids, st.integers(0, 5), st.integers(0, 3)),
)
# A file of a table without sequence has a key once.
batches = st.lists(st.lists(rows, min_size=1, max_size=4, unique_by=lambda row: row.id), min_size=1)
ends = st.none() | ids


@examples(70)
@given(st.sampled_from([METADATA, SEQUENCED]), batches, ends, ends)
def test_the_rows_of_a_range_are_those_of_the_whole_state(
    metadata: TableMetadata, written: list[list[Row]], least: int | None, greatest: int | None
) -> None:
    store = DictObjectStore()
    table = ScriptedTable(store, metadata=metadata)
    for batch, some in enumerate(written):
        table.commit(batch, *some)
    history = WatchedHistory(TableStore(store), table.metadata)
    wanted = {"id": ValueRange(least, greatest)}
    everything: dict[int, Any] = by_key(StateReader(history).read())
    files_read.clear()
    rows_read = by_key(StateReader(history).read(key_ranges=wanted))
    assert rows_read == {
        key: values
        for key, values in everything.items()
        if (least is None or least <= key) and (greatest is None or key <= greatest)
    }
    state = history.at(len(written) - 1).state
    assert {file.name for file in files_read} == {
        file.name for file in state if may_hold(file.key_bounds, wanted)
    }
