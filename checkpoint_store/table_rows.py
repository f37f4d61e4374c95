"""Rows as a table's file has them, made of rows as users see them. Pure.

key columns…    under their own names
_key_group      int32
_state          "row"
_op             put or delete
row             struct of all other columns, null for a delete; underscores are appended to its
                name if a key column has it
_sequence       the value that decides which row of a key wins; only if the table has one
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute

from checkpoint_store.row_fold import DELETE, OP, SEQUENCE, STATE
from checkpoint_store.state_file import KEY_GROUP_COLUMN
from checkpoint_store.state_history import StateShape
from checkpoint_store.table_schema import column_names
from checkpoint_store.table_version import ROW_STATE

# The stubs of the compute functions do not take what the functions take, such as chunked arrays.
pc: Any = pyarrow.compute

_STATE_METADATA = {b"cowstate.state": ROW_STATE.encode()}


def file_rows(rows: pa.Table, shape: StateShape) -> pa.Table:
    """What `row_fold` made of a table's files, in the form that files have."""
    keys = column_names(shape.key_schema_json)
    values = column_names(shape.value_schema_json)
    deleted = pc.equal(rows[OP], DELETE).combine_chunks()
    fields = [pa.field(name, rows.schema.field(name).type) for name in values]
    struct: Any = (
        pa.StructArray.from_arrays(
            [rows[name].combine_chunks() for name in values], fields=fields, mask=deleted
        )
        if fields
        else pa.array([{}] * rows.num_rows, pa.struct([]))
    )
    name = ROW_STATE
    while name in keys:
        name += "_"
    columns: list[tuple[pa.Field[Any], Any]] = [
        (pa.field(key, rows.schema.field(key).type), rows[key]) for key in keys
    ]
    columns += [
        (pa.field(KEY_GROUP_COLUMN, pa.int32(), nullable=False), rows[KEY_GROUP_COLUMN]),
        (
            pa.field(STATE, pa.string(), nullable=False),
            pa.repeat(pa.scalar(ROW_STATE), rows.num_rows),
        ),
        (pa.field(OP, pa.string(), nullable=False), rows[OP]),
        (pa.field(name, struct.type, metadata=_STATE_METADATA), struct),
    ]
    if shape.sequenced:
        of_sequence = rows.schema.field(SEQUENCE).type
        # Without any rows the type is not known.
        nullable = pa.types.is_null(of_sequence)
        columns.append((pa.field(SEQUENCE, of_sequence, nullable=nullable), rows[SEQUENCE]))
    schema = pa.schema([field for field, _ in columns])
    return pa.Table.from_arrays([column for _, column in columns], schema=schema)
