"""The tasks of an adoption: one job writes the state, with a task for each subtask, and another job
reads the state back.

The rows have the form of adopted_rows; files have the columns of state_rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute
from pyspark import TaskContext
from pyspark.sql.types import StructType

from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.epochs.store_metadata import StoreMetadata
from checkpoint_store.epochs.subtask_attempt import SubtaskAttempt
from checkpoint_store.files.document_body import body_of
from checkpoint_store.files.key_group_range import (
    KeyGroupRange,
    key_group_range_of_subtask,
    subtask_of_key_group,
)
from checkpoint_store.files.state_file import KEY_GROUP_COLUMN, OP, PUT, STATE
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.operators.completed_checkpoint_store import (
    CompletedCheckpointStore,
)
from spark_state.key_group_hash import with_one_nan_and_zero
from spark_state.keyed_state.full_snapshot import ROWS_OF_FILE
from spark_state.keyed_state.state_rows import sorted_by_key, state_columns
from spark_state.processor.schemas import arrow_schema
from spark_state.spark.adoption.merged_keys import merged_key
from spark_state.spark.session.operator_configuration import OperatorConfiguration
from spark_state.spilled_parts import MOST_PARTS, SpilledParts

# The type stubs of pyarrow.compute reject arguments that its functions take.
pc: Any = pyarrow.compute

WRITTEN = (
    StructType()
    .add("subtask", "integer")
    .add("handle", "string")
    .add("next_timer_ms", "long")
    .add("merged_key", "string")
)
"""The columns of a task's output: a row for each file that the task has written. If several keys of
Spark would become one key, the task writes no file, and returns one row with this `merged_key`."""


@dataclass(frozen=True, slots=True)
class TargetStore:
    """The store that an adoption fills. Can be pickled.

    `epoch`: the epoch of the state; `run`: the run of the adoption; `keys`: the number of key
    columns; `file_schema`: the columns of files; `timers`: the index of the state with the timers,
    None without timers.
    """

    url: str
    configuration: OperatorConfiguration
    metadata: StoreMetadata
    parallelism: int
    epoch: int
    run: Run
    keys: int
    file_schema: pa.Schema
    timers: int | None

    def key_groups(self, subtask: int) -> KeyGroupRange:
        """The key groups of a subtask."""
        most = self.metadata.max_parallelism
        return key_group_range_of_subtask(most, self.parallelism, subtask)

    def open(self) -> CompletedCheckpointStore:
        """Open the checkpoints in the store. Creates the store if the store does not exist."""
        opened = open_object_store(self.url, self.configuration.checkpoints.store_options)
        store = RetryingObjectStore(opened, self.configuration.checkpoints.store_retry_seconds)
        checkpoints = CompletedCheckpointStore(store)
        checkpoints.open(self.metadata)
        return checkpoints


def write_subtask(
    target: TargetStore, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows of a subtask as files of a snapshot. Returns rows with the columns of WRITTEN;
    a file is durable before its row is returned.

    Rows beyond a limit wait on the local disk, by ranges of key groups. A file has the rows of
    whole ranges, so memory holds the rows of one file and of one range.
    """
    context = TaskContext.get()
    assert context is not None
    with SpilledParts() as parts:
        own = _received(target, batches, parts)
        if own is None:
            return
        next_timer_ms, merged = _looked_through(target, parts)
        if merged is not None:
            yield _written(merged_key=repr(merged))
            return
        checkpoints = target.open()
        subtask = subtask_of_key_group(
            own.start, target.metadata.max_parallelism, target.parallelism
        )
        for part, of_part in _files(target, parts, own):
            by = SubtaskAttempt(target.run, target.epoch, subtask, context.taskAttemptId())
            handle = checkpoints.files.written_by(by).write("snapshot", part, of_part)
            yield _written(
                subtask=subtask,
                handle=json.dumps(body_of(handle)),
                next_timer_ms=next_timer_ms,
            )


def _received(
    target: TargetStore, batches: Iterator[pa.RecordBatch], parts: SpilledParts
) -> KeyGroupRange | None:
    """Distribute the rows over `parts` by ranges of key groups. Return the key groups of the rows'
    subtask; None if there are no rows."""
    own: KeyGroupRange | None = None
    most = target.metadata.max_parallelism
    for batch in batches:
        if not batch.num_rows:
            continue
        key_groups = batch.column("key_group").to_numpy()
        if own is None:
            own = target.key_groups(
                subtask_of_key_group(int(key_groups[0]), most, target.parallelism)
            )
        first, last = int(key_groups.min()), int(key_groups.max())
        assert own.start <= first <= last <= own.end, (first, last, own)
        count = max(own.end - own.start + 1, MOST_PARTS)
        ranges = (key_groups.astype(np.int64) - own.start) * MOST_PARTS // count
        parts.add(pa.Table.from_batches([batch]), ranges)
    return own


def _looked_through(
    target: TargetStore, parts: SpilledParts
) -> tuple[int | None, tuple[Any, ...] | None]:
    """Look through all rows. Return two values: the time of the earliest timer, None without
    timers; and a key of cowstate that stands for several keys of Spark, None if there is no such
    key. If there is such a key, the time is None."""
    timers: list[int] = []
    for rows in _each(parts):
        timer = _next_timer_ms(target, rows)
        timers += [] if timer is None else [timer]
        merged = merged_key(_keys_of_spark(target, rows), _keys(target, rows))
        if merged is not None:
            return None, merged
    return min(timers, default=None), None


def _each(parts: SpilledParts) -> Iterator[pa.Table]:
    return (rows for part in range(MOST_PARTS) if (rows := parts.rows_of(part)) is not None)


def _files(
    target: TargetStore, parts: SpilledParts, own: KeyGroupRange
) -> Iterator[tuple[pa.Table, KeyGroupRange]]:
    """The sorted rows of each file, with the file's key groups. Every file but the last has at
    least ROWS_OF_FILE rows. The key groups of all files together are `own`."""
    first, waiting = own.start, list[pa.Table]()
    for rows in _each(parts):
        if sum(table.num_rows for table in waiting) >= ROWS_OF_FILE:
            last = pc.min(rows.column("key_group")).as_py() - 1
            yield _file_table(target, waiting), KeyGroupRange(first, last)
            first, waiting = last + 1, []
        waiting.append(rows)
    yield _file_table(target, waiting), KeyGroupRange(first, own.end)


def _written(**told: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([told], arrow_schema(WRITTEN))


def read_subtasks(
    target: TargetStore, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of the subtasks whose numbers are in `batches`, as a host would restore the rows."""
    checkpoints = target.open()
    checkpoint = checkpoints.latest_before(target.epoch + 1)
    assert checkpoint is not None, f"{target.url} has no epoch"
    for batch in batches:
        for subtask in cast(list[int], batch.column(0).to_pylist()):
            key_groups = target.key_groups(subtask)
            handles = checkpoint.handles_for(key_groups)
            for _, in_file in checkpoints.files.states.read_each(handles, key_groups):
                yield from (_as_rows(target, rows) for rows in in_file)


def _next_timer_ms(target: TargetStore, rows: pa.Table) -> int | None:
    if target.timers is None:
        return None
    times = pc.struct_field(rows.column(f"state_{target.timers}"), 0)
    return cast(int | None, pc.min(times).as_py())


def _file_table(target: TargetStore, tables: list[pa.Table]) -> pa.Table:
    """The rows, in the form of adopted_rows, as a sorted table with the columns of files."""
    rows = pa.concat_tables(tables)
    names = [column.name for column in state_columns(target.file_schema)]
    states = pc.take(pa.array(names, pa.string()), rows.column("state").combine_chunks())
    key_names = target.file_schema.names[: target.keys]
    columns: list[Any] = _keys(target, rows)
    columns += [rows.column("key_group"), states, pa.repeat(pa.scalar(PUT), rows.num_rows)]
    columns += [rows.column(f"state_{place}") for place in range(len(names))]
    cast_columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, target.file_schema, strict=True)
    ]
    table = pa.Table.from_arrays(cast_columns, schema=target.file_schema)
    return sorted_by_key(table, key_names)


def _keys_of_spark(target: TargetStore, rows: pa.Table) -> list[Any]:
    return [rows.column(f"key_{place}") for place in range(target.keys)]


def _keys(target: TargetStore, rows: pa.Table) -> list[Any]:
    return [
        _key(column, target.file_schema.field(place).type)
        for place, column in enumerate(_keys_of_spark(target, rows))
    ]


def _key(column: Any, arrow_type: pa.DataType) -> Any:
    """A column of the key in the form in which hosts keep keys: floating-point numbers in one form,
    also in structs."""
    if pa.types.is_floating(arrow_type):
        return with_one_nan_and_zero(column)
    if not pa.types.is_struct(arrow_type):
        return column
    whole = column.combine_chunks()
    fields = [
        _key(pa.chunked_array([values]), field.type).combine_chunks()
        for values, field in zip(whole.flatten(), arrow_type, strict=True)
    ]
    in_one_form = pa.StructArray.from_arrays(fields, fields=list(whole.type), mask=whole.is_null())
    return pa.chunked_array([in_one_form])


def _as_rows(target: TargetStore, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of a file under the column names of adopted_rows."""
    columns = state_columns(batch.schema)
    names = pa.array([column.name for column in columns], pa.string())
    arrays: list[Any] = [batch.column(place) for place in range(target.keys)]
    arrays.append(batch.column(KEY_GROUP_COLUMN))
    arrays.append(pc.index_in(batch.column(STATE), names).cast(pa.int32()))
    arrays += [batch.column(column.index) for column in columns]
    labels = [f"key_{place}" for place in range(target.keys)]
    labels += ["key_group", "state", *(f"state_{place}" for place in range(len(columns)))]
    assert batch.column(OP).to_pylist().count(PUT) == batch.num_rows, "a snapshot has puts only"
    return pa.RecordBatch.from_arrays(arrays, labels)
