"""A CountsOperator that writes files in the engine's format, so that state readers can read them.

The only state, `count`, has the column `n`; the key column is `key`. A key is its own key group, so
keys are 0 to 7. Of two subtasks, the first subtask has keys 0 to 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from checkpoint_store.epochs.completed_checkpoint import StateSchema
from tests.support.operators.counts_operator import METADATA, CountsOperator
from tests.support.tables.table_rows_of import schema_json

KEYED = replace(METADATA, key_schema_json=schema_json(key="long"))
_SCHEMA = pa.schema(
    [
        pa.field("key", pa.int64()),
        pa.field("_key_group", pa.int32()),
        pa.field("_state", pa.string()),
        pa.field("_op", pa.string()),
        pa.field("count", pa.struct([("n", pa.int32())]), metadata={b"cowstate.state": b"count"}),
    ]
)


class KeyedOperator(CountsOperator):
    """One run of the operator."""

    metadata = KEYED
    states = (StateSchema("count", "value", schema_json(n="integer")),)

    def table(self, state: Mapping[int, int]) -> pa.Table:
        """The rows of a file."""
        rows = [
            {"key": key, "_key_group": key, "_state": "count", "_op": "put", "count": {"n": n}}
            for key, n in sorted(state.items())
        ]
        return pa.Table.from_pylist(rows, schema=_SCHEMA)
