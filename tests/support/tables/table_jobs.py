"""Queries that write and read tables, in a session of the tests or as drivers of their own:
python -m tests.support.tables.table_jobs JOB FOLDER [--kill POINT:BATCH]

    upsert   files of events in FOLDER/input -> table FOLDER/events
    totals   changes of FOLDER/events -> transform_with_state -> table FOLDER/totals
    sums     the same files -> an aggregation of Spark's, in output mode update -> table FOLDER/sums

A job ends when all input from before its start is processed, or kills its own driver with SIGKILL
at a point of a batch: `before-commit` (files, no version yet) or `after-commit` (the version is
published, but Spark does not know the version).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from chispa.rows_comparer import assert_basic_rows_equality
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

import spark_state
from datasources.cowstate_source import CowStateDataSource
from datasources.sink.table_rows import SinkPlan
from datasources.sink.table_sink import TableStreamWriter
from tests.support.processors.processors import RunningTotals
from tests.support.provider.provider_jobs import THROUGH_MANAGER, configured
from tests.support.sessions.spark_session import start_spark, stop_spark

EVENT_SCHEMA = "id bigint, key string, value bigint"
FEED_FIELDS = ", _change_type string, _commit_version bigint, _commit_timestamp timestamp"
_KILL, _DRIVER = "TABLE_JOB_KILL", "TABLE_JOB_DRIVER"
Values = tuple[Any, ...]


def write(df: DataFrame, table: str, **options: Any) -> None:
    """Write a batch of upserts."""
    df.write.format("cowstate").mode("append").options(**options).save(table)


def read(spark: SparkSession, table: str, **options: Any) -> DataFrame:
    """The rows of a table."""
    return spark.read.format("cowstate").options(**options).load(table)


def in_order(rows: Iterable[Sequence[Any]]) -> list[Values]:
    """Sorted rows, also with nulls and mixed types."""
    return sorted((tuple(row) for row in rows), key=repr)


def rows_of(spark: SparkSession, table: str, **options: Any) -> list[Values]:
    """All rows of a table, sorted."""
    return in_order(read(spark, table, **options).collect())


def assert_rows(frame: DataFrame, rows: Iterable[Sequence[Any]]) -> None:
    """Check that a frame has these rows, in any order. The error shows all rows and marks the
    differences."""
    expected = [Row(*frame.columns)(*row) for row in rows]
    assert_basic_rows_equality(sorted(frame.collect(), key=repr), sorted(expected, key=repr))


def run_to_the_end(query: StreamingQuery) -> None:
    """Wait for a query that ends by itself. Raises the query's error."""
    try:
        query.awaitTermination()
    finally:
        query.stop()


@dataclass
class Upserts:
    """A query from files in a folder into a table, one file per batch. A second run goes on."""

    spark: SparkSession
    folder: Path
    schema: str = EVENT_SCHEMA
    options: Mapping[str, Any] = field(default_factory=lambda: {"keys": "id"})
    files_per_batch: int = 1
    table: str = ""
    fed: list[Values] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = self.table or str(self.folder / "events")

    @property
    def checkpoint(self) -> Path:
        return self.folder / "events-checkpoint"

    def feed(self, *rows: Values) -> None:
        """Add one file of rows."""
        feed_file(self.folder / "input", rows, self.schema)
        self.fed += rows

    def source(self) -> DataFrame:
        reader = self.spark.readStream.schema(self.schema)
        files = reader.option("maxFilesPerTrigger", self.files_per_batch)
        return files.parquet(str(self.folder / "input"))

    def start(self, checkpoint: Path | None = None, **options: Any) -> StreamingQuery:
        """Start a query over the files that exist now. `options` replace the options of this
        object."""
        writer = self.source().writeStream.format("cowstate").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(checkpoint or self.checkpoint))
        with configured(self.spark, THROUGH_MANAGER):
            return writer.options(**{**self.options, **options}).start(self.table)

    def run(self, checkpoint: Path | None = None, **options: Any) -> None:
        run_to_the_end(self.start(checkpoint, **options))

    def rows(self, **options: Any) -> list[Values]:
        return rows_of(self.spark, self.table, **options)

    def versions(self) -> list[str]:
        return version_files(self.table)


@dataclass
class Changes:
    """A query that collects the change feed of a table. A second run goes on.

    `batches`: the rows of each batch with rows. Spark begins with an empty batch if there is no
    change.
    """

    spark: SparkSession
    table: str
    checkpoint: Path
    batches: list[list[Row]] = field(default_factory=list)

    def frame(self, schema: str | None = None, **options: Any) -> DataFrame:
        reader = self.spark.readStream.format("cowstate").option("readChangeFeed", "true")
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(**options).load(self.table)

    def start(self, schema: str | None = None, **options: Any) -> StreamingQuery:
        """Start a query that ends at the newest version."""
        writer = self.frame(schema, **options).writeStream.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        with configured(self.spark, THROUGH_MANAGER):
            return writer.foreachBatch(self.keep).start()

    def run(self, schema: str | None = None, **options: Any) -> list[list[Row]]:
        """Run the query to its end and return the new batches."""
        before = len(self.batches)
        run_to_the_end(self.start(schema, **options))
        return self.batches[before:]

    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch]

    def keep(self, batch: DataFrame, _: int) -> None:
        rows = batch.collect()
        if rows:
            self.batches.append(rows)


def feed_file(folder: Path, rows: Sequence[Values], schema: str) -> None:
    """Add a file that a query reads after all existing files."""
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.glob("*.parquet")))
    arrow = to_arrow_schema(StructType.fromDDL(schema), timezone="UTC")
    columns = zip(*rows, strict=True) if rows else [()] * len(arrow)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, arrow, strict=True)]
    hidden = folder.parent / "next.parquet"
    pq.write_table(pa.Table.from_arrays(arrays, schema=arrow), hidden)
    # A file source reads the oldest file first, and compares times only in milliseconds.
    os.utime(hidden, (1_700_000_000 + number,) * 2)
    hidden.rename(folder / f"{number:05d}.parquet")


def version_files(table: str) -> list[str]:
    """The file names of a local table's versions."""
    return sorted(path.name for path in (Path(table) / "versions").glob("*.json"))


def last_rows(rows: Iterable[Values]) -> list[Values]:
    """The last row of each key, sorted. The key is the first column."""
    return in_order({row[0]: row for row in rows}.values())


def applied(changes: Iterable[Row], keys: int = 1) -> list[Values]:
    """Apply ordered changes and return the remaining rows. Each change must fit the rows before the
    change."""
    present: dict[Values, Values] = {}
    for row in sorted(
        changes, key=lambda row: (row["_commit_version"], _RANK[row["_change_type"]])
    ):
        values = tuple(row)[:-3]
        kind = row["_change_type"]
        if kind == "insert":
            assert values[:keys] not in present, f"{row} is there already"
        elif kind != "update_postimage":
            assert present[values[:keys]] == values, f"{row} is not what was there"
        if kind in ("insert", "update_postimage"):
            present[values[:keys]] = values
        elif kind == "delete":
            del present[values[:keys]]
    return in_order(present.values())


_RANK = {"delete": 0, "update_preimage": 1, "update_postimage": 2, "insert": 3}


class KilledWriter(TableStreamWriter):
    """A sink that kills the driver, and then the sink's own process, at the point of `_KILL`."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        die_at("before-commit", batchId)
        super().commit(messages, batchId)
        die_at("after-commit", batchId)


class KilledDataSource(CowStateDataSource):
    """The data source under its own name, with a sink that can be killed."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> KilledWriter:  # noqa: N802
        writer: Any = super().streamWriter(schema, overwrite)
        plan: SinkPlan = writer._plan
        return KilledWriter(plan)


cloudpickle.register_pickle_by_value(sys.modules[__name__])


def die_at(point: str, batch: int) -> None:
    """Kill the driver, its JVM first, and this process, if `_KILL` names this point and batch."""
    if os.environ.get(_KILL) != f"{point}:{batch}":
        return
    driver = psutil.Process(int(os.environ[_DRIVER]))
    for process in [*driver.children(recursive=True), driver]:
        if process.pid != os.getpid():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    os.kill(os.getpid(), signal.SIGKILL)


def _upsert(spark: SparkSession, folder: Path) -> DataFrame:
    return Upserts(spark, folder).source()


def _totals(spark: SparkSession, folder: Path) -> DataFrame:
    changes = Changes(spark, str(folder / "events"), folder)
    signed = "if(_change_type in ('insert', 'update_postimage'), value, -value) as value"
    schema = EVENT_SCHEMA + FEED_FIELDS
    events = changes.frame(schema, startingVersion="earliest", maxVersionsPerTrigger=1).selectExpr(
        "key", signed
    )
    return spark_state.transform_with_state(
        events.groupBy("key"),
        RunningTotals(),
        "key string, rows bigint, total bigint",
        "update",
        "None",
        name="totals",
    )


def _sums(spark: SparkSession, folder: Path) -> DataFrame:
    return _upsert(spark, folder).groupBy("key").agg(F.sum("value").alias("total"))


@dataclass(frozen=True)
class _Job:
    """The source of a job's rows, and the table, options and output mode of its writes."""

    frame: Callable[[SparkSession, Path], DataFrame]
    table: str
    options: Mapping[str, str]
    output_mode: str = "append"


_JOBS = {
    "upsert": _Job(_upsert, "events", {"keys": "id", "sequenceBy": "value"}),
    "totals": _Job(_totals, "totals", {"keys": "key"}),
    "sums": _Job(_sums, "sums", {"keys": "key"}, "update"),
}


def run_job(spark: SparkSession, name: str, folder: Path) -> None:
    """Run a job until the existing input is processed. State is also in `folder`."""
    job = _JOBS[name]
    with configured(spark, {"spark.cowstate.store": (folder / "state").as_uri()}):
        writer = job.frame(spark, folder).writeStream.format("cowstate")
        checkpoint = folder / f"{job.table}-checkpoint"
        writer = writer.option("checkpointLocation", str(checkpoint)).options(**job.options)
        writer = writer.outputMode(job.output_mode).trigger(availableNow=True)
        run_to_the_end(writer.start(str(folder / job.table)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=_JOBS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kill", default="never:0", metavar="POINT:BATCH")
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.update({_KILL: arguments.kill, _DRIVER: str(os.getpid())})
    spark = start_spark("local[2]", arguments.folder / f"{arguments.job}-session")
    spark.dataSource.register(KilledDataSource)
    try:
        run_job(spark, arguments.job, arguments.folder)
    finally:
        stop_spark(spark)


if __name__ == "__main__":
    main()
