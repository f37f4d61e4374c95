"""Stateful queries over two streams of events, run on a state store provider batch by batch.

A query runs over the first files, stops, and continues from its checkpoint over the other files.
The query's output and the state from Spark's reader are kept by batch, for comparison with another
provider. Each read of a state costs as much as a batch of the query. A test that compares all
batches reads the change feed once (`tests/support/provider/provider_histories.py`) and the states
of a few batches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
from tests.support.provider.provider_inputs import EVENT_SCHEMA, deliver

_BUILT_IN = "org.apache.spark.sql.execution.streaming.state"
HDFS = f"{_BUILT_IN}.HDFSBackedStateStoreProvider"
ROCKSDB = f"{_BUILT_IN}.RocksDBStateStoreProvider"
COWSTATE = PROVIDER_CLASS

STATE_STORE = "spark.sql.streaming.stateStore"

Options = Mapping[str, str]

JOIN_STORES: Sequence[Options] = [
    {"storeName": f"{side}-{name}"}
    for side in ("left", "right")
    for name in ("keyToNumValues", "keyWithIndexToValue")
]

# A file manager without child processes, and fewer files: a batch takes half the time.
THROUGH_MANAGER: Options = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}

# The row counts in Spark's progress of an operator in a batch.
COUNTS = ("numRowsTotal", "numRowsUpdated", "numRowsRemoved", "numRowsDroppedByWatermark")

Counts = dict[int, list[list[int]]]
"""The `COUNTS` of each operator, by batch."""

Fields = dict[str, Any]


class Entry(NamedTuple):
    """A row of a store: store number, partition, and key and value as text."""

    store: int
    partition: int
    content: str


Batches = dict[int, list[Entry]]


@dataclass(frozen=True, slots=True)
class Job:
    """A stateful query.

    `build` makes the query from two streams of events. `stores`: the options of Spark's state
    reader for each store. `shrinks`: True if some batches leave less state than before. `compared`
    reduces a value to the part that two runs have in common. `settings`: Spark settings that the
    query needs.
    """

    build: Callable[[DataFrame, DataFrame], DataFrame]
    mode: str = "append"
    stores: Sequence[Options] = ({},)
    shrinks: bool = True
    compared: Callable[[Fields], Fields] = dict
    settings: Options = field(default_factory=dict)


@contextmanager
def configured(spark: SparkSession, settings: Options) -> Iterator[None]:
    """Set `settings` in the session during a `with` block, and restore the old settings
    afterwards."""
    before = {key: spark.conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


@contextmanager
def maintenance_of(spark: SparkSession) -> Iterator[None]:
    """Stop maintenance before and after a `with` block, so that queries in the block start
    maintenance with their own interval."""
    assert spark._jvm is not None
    stores = spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore
    stores.stop()
    try:
        yield
    finally:
        stores.stop()


def in_order(rows: list[Row]) -> list[str]:
    """Sorted rows as text. Unlike rows with nulls or mixed types, texts can be sorted."""
    return sorted(repr(row) for row in rows)


def text(row: Mapping[str, Any]) -> str:
    """The values of a row in order, as text. Column names are left out, because Spark and cowstate
    use different names."""
    return repr(tuple(row.values()))


@dataclass
class ProviderRun:
    """A job with its provider and its checkpoint, in a folder of its own.

    `actions`: how often the sink computes each batch. `outputs`: the rows of each computation, by
    batch.
    """

    spark: SparkSession
    job: Job
    provider: str
    folder: Path
    settings: Options = field(default_factory=dict)
    actions: int = 1
    outputs: dict[int, list[list[str]]] = field(default_factory=lambda: defaultdict(list))
    counts: Counts = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def batches(self) -> range:
        return range(len(list((self.checkpoint / "commits").glob("[0-9]*"))))

    def _source(self, name: str) -> DataFrame:
        reader = self.spark.readStream.schema(EVENT_SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder / name))

    def _collect(self, batch: DataFrame, number: int) -> None:
        for _ in range(self.actions):
            self.outputs[number].append(in_order(batch.collect()))

    def start(self, left: list[Path], right: list[Path]) -> StreamingQuery:
        """Start or continue the query with these files. A batch takes one file of each side."""
        deliver(left, self.folder / "left")
        deliver(right, self.folder / "right")
        settings = {PROVIDER_KEY: self.provider, **self.job.settings, **self.settings}
        with configured(self.spark, settings):
            output = self.job.build(self._source("left"), self._source("right"))
            return (
                output.writeStream.foreachBatch(self._collect)
                .outputMode(self.job.mode)
                .option("checkpointLocation", str(self.checkpoint))
                .trigger(availableNow=True)
                .start()
            )

    def note_counts(self, query: StreamingQuery) -> None:
        """Take over Spark's counts in the batches of a query."""
        for batch in query.recentProgress:
            self.counts[batch["batchId"]] = [
                [operator[name] for name in COUNTS] for operator in batch["stateOperators"]
            ]

    def run(self, left: list[Path], right: list[Path]) -> None:
        """Run until these files are processed, and stop."""
        run_together([self], left, right)

    def run_with_restart(self, left: list[Path], right: list[Path]) -> None:
        run_together_with_restart([self], left, right)

    def read_state(self, options: Options) -> DataFrame:
        """The state in the checkpoint, from Spark's own reader."""
        return self.spark.read.format("statestore").options(**options).load(str(self.checkpoint))

    def _entries(self, state: DataFrame, store: int) -> dict[int, list[Entry]]:
        """The entries by batch. `state` has the batch as a column."""
        by_batch: dict[int, list[Entry]] = defaultdict(list)
        columns = state.select("batch", "partition_id", "key", "value")
        # Compiling a union of small reads takes longer than the reads.
        with configured(self.spark, {"spark.sql.codegen.wholeStage": "false"}):
            rows = columns.toArrow().to_pylist()
        for row in rows:
            content = f"{text(row['key'])} {text(self.job.compared(row['value']))}"
            by_batch[row["batch"]].append(Entry(store, row["partition_id"], content))
        return by_batch

    def state_entries(self, options: Options) -> list[Entry]:
        """The content of the job's only store, read with these options."""
        state = self.read_state(options).withColumn("batch", F.lit(0))
        return sorted(self._entries(state, 0)[0])

    def states(self, batches: Sequence[int]) -> Batches:
        """The content of all stores after each batch in `batches`."""
        entries: Batches = {batch: [] for batch in batches}
        for place, store in enumerate(self.job.stores):
            states = [
                self.read_state({"batchId": str(batch), **store}).withColumn("batch", F.lit(batch))
                for batch in batches
            ]
            for batch, rows in self._entries(reduce(DataFrame.union, states), place).items():
                entries[batch] += rows
        return {batch: sorted(rows) for batch, rows in entries.items()}

    def snapshots(self) -> list[tuple[int, int]]:
        """Partition and batch of each snapshot of the first operator."""
        files = (self.checkpoint / "state" / "0").glob("[0-9]*/*.snapshot.arrow")
        return sorted((int(file.parent.name), int(file.name.split("-")[0]) - 1) for file in files)


def run_together(runs: Sequence[ProviderRun], left: list[Path], right: list[Path]) -> None:
    """Run several jobs at once until all files are processed. A single query waits for files most
    of the time."""
    queries: list[StreamingQuery] = []
    try:
        queries.extend(run.start(left, right) for run in runs)
        for query, run in zip(queries, runs, strict=True):
            query.awaitTermination()
            run.note_counts(query)
    finally:
        for query in queries:
            query.stop()


def run_together_with_restart(
    runs: Sequence[ProviderRun], left: list[Path], right: list[Path]
) -> None:
    half = len(left) // 2
    run_together(runs, left[:half], right[:half])
    run_together(runs, left[half:], right[half:])
