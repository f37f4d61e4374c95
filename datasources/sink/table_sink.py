"""Writes a DataFrame into a table: `df.write` and `df.writeStream` with `format("cowstate")`.

    driver   plans: creates the table if there is none, and checks that the rows' columns fit
    task     writes rows to durable files, which are named by query (or job), batch and attempt
    driver   looks for keys that are in several files, and commits: versions/<n>.json names the
             files

A task's files count only when the driver's commit names the files. So a failed or repeated attempt
leaves orphans and no other trace. The table records the last batch of each query. If Spark did not
see the commit of a batch, Spark repeats the batch, and the second commit changes nothing.

In foreachBatch `df.write` commits the query's batch, like the sink of the query. Rows of output
modes "append" and "update" are treated alike; the jar lets Spark use the sink in "update".

Spark makes a new writer for every batch, in worker processes that end after about a minute without
work. The plan holds everything about the table that tasks need, so tasks read nothing from the
store. On the driver, rows_of_batch reads a batch in parts of bounded size.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.tables.table_compaction import MergeBounds
from checkpoint_store.tables.table_store import TableCommit, TableFileWriter
from checkpoint_store.tables.table_version import TableMetadata
from datasources.sink.event_time_columns import watermark_ms
from datasources.sink.opened_tables import open_planned, open_table, plan_of_sink
from datasources.sink.rows_of_batch import check_duplicates, in_sequence
from datasources.sink.table_rows import SinkPlan, rows_to_write
from datasources.sink.table_upkeep import upkeep_of
from spark_state.errors import BatchIdentityError, ConfigurationError
from spark_state.spark.session.batch_identity import EPOCH, QUERY, batch_identity
from spark_state.spark.session.worker_loading import LoadedInWorkers

_FILE_ROWS = 1_000_000
_FILE_BYTES = 256 << 20


@dataclass
class FilesMessage(WriterCommitMessage):
    """Files of one task, in order, with their table, batch and watermark. `written_since`: the
    start of the task's writing, in seconds since 1970."""

    table: TableMetadata
    batch: WrittenBatch
    subtask: int
    files: tuple[StateHandle, ...]
    watermark_ms: int | None
    written_since: float


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """Batch that rows belong to: batch `number` of a run of a query, or all rows of a job.

    `writer`: the id of the query or job. `run`: the id of this start of the query, None for a job.
    """

    writer: str
    number: int
    run: str | None


class TableStreamWriter(LoadedInWorkers, DataSourceStreamArrowWriter):
    """The sink of a streaming query."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan

    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Write the rows of one task. The rows belong to the table only after the commit."""
        return _write(self._plan, iterator, job=None)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish the batch. Raises DuplicateKeyError, ConflictingWriterError, TableSchemaError,
        and LostVersionError if the table has lost an earlier batch."""
        _commit(self._plan, messages, after_all=True)


class TableBatchWriter(LoadedInWorkers, DataSourceArrowWriter):
    """The sink of a batch job. In foreachBatch of a query, the sink writes like the query's own
    sink."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan
        self._job = WrittenBatch(f"batch-{uuid4().hex}", 0, None)

    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Write the rows of one task. The rows belong to the table only after the commit."""
        return _write(self._plan, iterator, self._job)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the rows. Raises DuplicateKeyError, ConflictingWriterError, TableSchemaError, and
        WrittenTwiceError for a second write of a batch into the same table."""
        _commit(self._plan, messages, after_all=False)


def table_batch_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> TableBatchWriter:
    """The sink of a batch job for rows of `schema`. Raises like plan_of_sink, and
    ConfigurationError if `overwrite` is set for a table that has a version."""
    plan = plan_of_sink(options, schema)
    if overwrite and open_table(plan).versions():
        raise ConfigurationError(
            f'mode("overwrite") and INSERT OVERWRITE are refused for {plan.options.url}: a row '
            'replaces the row of the same key. Use mode("append") or INSERT INTO, and deleteWhen '
            "to remove rows; to replace all rows, write another table"
        )
    return TableBatchWriter(plan)


def table_stream_writer(options: Mapping[str, str], schema: StructType) -> TableStreamWriter:
    """The sink of a query for rows of `schema`. Raises like plan_of_sink."""
    return TableStreamWriter(plan_of_sink(options, schema))


def _write(
    plan: SinkPlan, batches: Iterator[pa.RecordBatch], job: WrittenBatch | None
) -> FilesMessage:
    """Write the rows of one task. `job`: the batch, if a batch job writes the rows; None for the
    sink of a streaming query. Raises BatchIdentityError if `job` is None and the task belongs to no
    query."""
    context = TaskContext.get()
    assert context is not None, "a task has a context"
    of_query = batch_identity(context)
    batch = job
    if of_query is not None:
        batch = WrittenBatch(of_query.query_id, of_query.epoch, of_query.run_id)
    if batch is None:
        raise BatchIdentityError(
            f"the sink of {plan.options.url} runs outside of a streaming query: {QUERY} and "
            f"{EPOCH} are not set, so its batch is unknown"
        )
    files: list[StateHandle] = []
    subtask = context.partitionId()
    writer = TableFileWriter(batch.writer, batch.number, subtask, context.taskAttemptId())
    reached: list[int] = []
    begun = time.time()
    table = open_table(plan)
    with table.shown_alive(writer):
        for rows in _portions(batches):
            watermark = watermark_ms(rows, plan.event_times)
            reached += [] if watermark is None else [watermark]
            of_file = rows_to_write(rows, plan)
            if of_file.num_rows:
                files.append(table.write_rows("changelog", of_file, writer))
    watermark = max(reached, default=None)
    return FilesMessage(plan.metadata, batch, subtask, tuple(files), watermark, begun)


def _portions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows in tables of a bounded size."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _FILE_ROWS or size >= _FILE_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def _commit(
    plan: SinkPlan, messages: Sequence[WriterCommitMessage | None], *, after_all: bool
) -> None:
    """Publish the rows of the tasks. `after_all`: True for the sink of a query, which writes every
    batch, so a missing earlier batch is an error. False for a batch job, because a function of
    foreachBatch may skip batches."""
    parts = sorted(
        (message for message in messages if isinstance(message, FilesMessage)),
        key=lambda message: message.subtask,
    )
    if not parts:
        return
    batch = parts[0].batch
    files = tuple(file for part in parts for file in part.files)
    # Spark plans the commit of a stream separately from its tasks.
    plan = replace(plan, metadata=parts[0].table)
    table, upkeep = open_planned(plan), upkeep_of(plan.options)
    writer = TableFileWriter(batch.writer, batch.number, 0, 0)
    written_since = min(part.written_since for part in parts)
    with table.shown_alive(writer, written_since):
        if len(files) > 1:
            check_duplicates(table, plan, files)
            files = in_sequence(table, plan, files, writer)
        if plan.options.on_duplicate == "first":
            files = files[::-1]
        commit = TableCommit(
            writer=batch.writer,
            run=batch.run,
            batch=batch.number,
            schema_json=plan.schema_json,
            files=files,
            merges_schema=plan.options.merge_schema,
            takes_over=plan.options.take_over,
            writers=len(parts),
            watermarks_ms={
                part.subtask: part.watermark_ms for part in parts if part.watermark_ms is not None
            },
            after_all=after_all,
            written_since=written_since,
        )
        bounds = MergeBounds(plan.options.auto_compact_bytes)
        table.commit(
            commit,
            lambda version: upkeep.done_before(plan.metadata, version, bounds, plan.options),
        )
