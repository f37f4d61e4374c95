"""Reads all rows of a batch on the driver before the commit, in parts by key.

All rows of a key are in the same part. A part has about a million rows, or 64 MiB of the batch's
files, so memory does not grow with the batch. Each file is read once, and its rows wait on the
local disk; see spilled_parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import pyarrow as pa

from checkpoint_store.files.state_file import KEY_GROUP_COLUMN
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.states.row_fold import SEQUENCE
from checkpoint_store.tables.table_store import TableFileWriter, TableStore
from datasources.errors import DuplicateKeyError
from datasources.sink.table_rows import SinkPlan, duplicate_keys
from spark_state.key_group_hash import key_groups_of
from spark_state.spilled_parts import MOST_PARTS, SpilledParts

_PART_ROWS = 1_000_000
_PART_BYTES = 64 << 20


def check_duplicates(table: TableStore, plan: SinkPlan, files: Sequence[StateHandle]) -> None:
    """Check that no key is in several files. Raises DuplicateKeyError. Tasks have checked their own
    rows."""
    if plan.metadata.sequence_by is not None or plan.options.on_duplicate != "error":
        return
    names = plan.key_names
    for keys in _parts(table, plan, files, names):
        duplicates = duplicate_keys([keys], names)
        if duplicates:
            raise DuplicateKeyError(names, tuple(duplicates))


def in_sequence(
    table: TableStore, plan: SinkPlan, files: Sequence[StateHandle], writer: TableFileWriter
) -> tuple[StateHandle, ...]:
    """Write files in which the rows of a key are in the order of their sequence, and return the
    files. Return `files` unchanged unless the table has both sequenceBy and ignoreNullUpdates.

    With both options, any row of a key may give a column its value, not only the last row. A row
    with a smaller sequence than an earlier row of its key is late, and changes nothing. A task
    alone cannot put the rows of a key in order, because other tasks may have rows of the same key.
    """
    if plan.metadata.sequence_by is None or not plan.metadata.ignore_null_updates:
        return tuple(files)
    order: list[tuple[str, Literal["ascending", "descending"]]] = [
        (KEY_GROUP_COLUMN, "ascending"),
        (SEQUENCE, "ascending"),
    ]
    return tuple(
        table.write_rows("changelog", rows.sort_by(order), writer)
        for rows in _parts(table, plan, files, plan.file_schema.names)
    )


def _parts(
    table: TableStore, plan: SinkPlan, files: Sequence[StateHandle], columns: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield the rows of files in parts. `columns`: the columns to yield, including the key
    columns."""
    rows, size = sum(file.rows for file in files), sum(file.length for file in files)
    count = min(1 + max(rows // _PART_ROWS, size // _PART_BYTES), MOST_PARTS)
    names, types = list(plan.key_names), plan.key_types
    with SpilledParts() as parts:
        for file in files:
            for batch in table.read_rows(file, plan.metadata.key_groups):
                keys = batch.select(names).columns
                parts.add(
                    pa.Table.from_batches([batch.select(list(columns))]),
                    key_groups_of(keys, types, count),
                )
        for part in range(count):
            of_part = parts.rows_of(part)
            if of_part is not None:
                yield of_part
