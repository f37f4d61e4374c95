"""The columns of a table's file, and the conversion of folded rows to these columns. Pure.

key columns…    under their own names
_key_group      int32
_state          "row"
_op             put or delete
row             struct of all value columns, null for a delete; underscores are appended to the
                name `row` if a key column has the name
_sequence       value that decides which row of a key wins; only if the table has a sequence
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_store.files.schema_columns import column_names
from checkpoint_store.files.state_file import KEY_GROUP_COLUMN, OP, PUT, STATE, STATE_METADATA
from checkpoint_store.states.row_fold import SEQUENCE
from checkpoint_store.states.state_history import StateShape
from checkpoint_store.tables.table_version import ROW_STATE


def file_schema(
    keys: Sequence[pa.Field[Any]], values: Sequence[pa.Field[Any]], sequence: pa.DataType | None
) -> pa.Schema:
    """The columns of a file. `sequence`: the type of `_sequence`, None if the table has no
    sequence."""
    row = ROW_STATE
    while row in (key.name for key in keys):
        row += "_"
    fields = [
        *keys,
        pa.field(KEY_GROUP_COLUMN, pa.int32(), nullable=False),
        pa.field(STATE, pa.string(), nullable=False),
        pa.field(OP, pa.string(), nullable=False),
        pa.field(row, pa.struct(list(values)), metadata={STATE_METADATA: ROW_STATE.encode()}),
    ]
    if sequence is not None:
        # Without any rows the type of the sequence is not known.
        fields.append(pa.field(SEQUENCE, sequence, nullable=pa.types.is_null(sequence)))
    return pa.schema(fields)


def row_structs(columns: Sequence[Any], row_type: pa.DataType, present: Any) -> pa.Array[Any]:
    """Build the column `row` from columns (ChunkedArrays): a struct where `present` (a
    BooleanArray) is true, else null. The struct is built from buffers, because a struct without
    fields gets no length from arrays."""
    children = [
        pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        for column in columns
    ]
    # The bits of a slice may begin inside a byte; the bits of a struct begin at a byte.
    whole = pa.concat_arrays([present, pa.array([], pa.bool_())]) if present.offset else present
    return pa.Array.from_buffers(row_type, len(whole), [whole.buffers()[1]], children=children)


def file_rows(rows: pa.Table, shape: StateShape) -> pa.Table:
    """Convert rows that `row_fold` made of a table's files to the columns of a file."""
    keys = column_names(shape.key_schema_json)
    values = column_names(shape.value_schema_json)
    schema = file_schema(
        [pa.field(name, rows.schema.field(name).type) for name in keys],
        [pa.field(name, rows.schema.field(name).type) for name in values],
        rows.schema.field(SEQUENCE).type if shape.sequenced else None,
    )
    present = pc.equal(rows[OP], PUT).combine_chunks()
    columns: list[Any] = [
        *(rows[name] for name in keys),
        rows[KEY_GROUP_COLUMN],
        pa.repeat(pa.scalar(ROW_STATE), rows.num_rows),
        rows[OP],
        row_structs([rows[name] for name in values], schema.field(len(keys) + 3).type, present),
    ]
    if shape.sequenced:
        columns.append(rows[SEQUENCE])
    return pa.Table.from_arrays(columns, schema=schema)
