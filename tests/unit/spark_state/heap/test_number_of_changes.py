"""An epoch counts all changed elements, so the removal of expired states keeps pace."""

from __future__ import annotations

import pyarrow as pa

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.processor.rows import STATE_FORMS
from tests.support.operators.subtasks import ParsedSchemas


def test_a_list_that_every_epoch_puts_anew_counts_all_its_elements() -> None:
    columns = KeyColumns(("key",), (pa.int64(),), ("long",))
    backend = HeapKeyedStateBackend(KeyGroupRange(0, 3), columns, STATE_FORMS)
    state = backend.state(ParsedSchemas().keyed("list", "state", ("n bigint",)))
    for _ in range(2):
        for key in range(3):
            backend.set_current_key((key,), key)
            state.put([(element,) for element in range(50)])
        assert backend.number_of_changes() >= 3 * 50
        backend.seal()
    assert backend.number_of_changes() == 0
