"""Streams of rows (key, value) from files, run epoch by epoch, and the expected results."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.readwriter import DataStreamWriter

import spark_state
from checkpoint_store import open_store
from tests.support.processors.processors import TOTALS_SCHEMA, RunningTotals
from tests.support.provider.provider_jobs import (
    PROVIDER_KEY,
    ROCKSDB,
    THROUGH_MANAGER,
    Options,
    configured,
)

INPUT_SCHEMA = "key string, value bigint"
Row = tuple[str, int]
Totals = dict[str, tuple[int, int]]


def random_rows(seed: float, count: int, keys: int) -> list[Row]:
    """`count` rows over at most `keys` keys. The same seed gives the same rows."""
    chance = random.Random(seed)
    return [(f"key{chance.randrange(keys)}", chance.randrange(1000)) for _ in range(count)]


def write_rows(file: Path, rows: Sequence[tuple[Any, Any]]) -> None:
    """Write a file of rows (key, value), also into a new folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    keys = pa.array([key for key, _ in rows], pa.string())
    values = pa.array([value for _, value in rows], pa.int64())
    pq.write_table(pa.table({"key": keys, "value": values}), file)


def totals_of(rows: list[Row]) -> Totals:
    """The expected totals, by a batch computation: key -> (rows, sum of values)."""
    counts: Counter[str] = Counter(key for key, _ in rows)
    sums: Counter[str] = Counter()
    for key, value in rows:
        sums[key] += value
    return {key: (count, sums[key]) for key, count in counts.items()}


@contextmanager
def enabled(spark: SparkSession) -> Iterator[SparkSession]:
    """Enable the session during a `with` block."""
    spark_state.enable(spark)
    try:
        yield spark
    finally:
        for key in ("spark.cowstate.enabled", "spark.cowstate.fallback"):
            spark.conf.unset(key)


class Stream:
    """A query over files in a folder, one file per epoch. A query that starts again goes on.

    `settings`: the Spark settings at the start of the query. With Spark's own settings a batch
    takes twice as long. `trigger`: the query's trigger.

    The output of epoch n goes to `output/epoch=n`. A second run of epoch n replaces the folder, so
    the folders hold the content of an idempotent sink.
    """

    def __init__(
        self, spark: SparkSession, folder: Path, settings: Options = THROUGH_MANAGER
    ) -> None:
        self.spark = spark
        self.folder = folder
        self.settings = settings
        self.input = folder / "input"
        self.input.mkdir(parents=True, exist_ok=True)
        self.checkpoint = folder / "checkpoint"
        self.fed: list[Row] = []
        self.trigger: dict[str, Any] = {"availableNow": True}
        self.query: Any = None
        self._files = 0
        self._newest = 0.0

    def feed(self, rows: list[Row]) -> None:
        """Add one file of rows, which is one epoch."""
        hidden = self.folder / "next.parquet"
        write_rows(hidden, rows)
        # Spark reads files in the order of their modification times, in milliseconds.
        self._newest = max(time.time(), self._newest + 0.01)
        os.utime(hidden, (self._newest, self._newest))
        hidden.rename(self.input / f"{self._files:05d}.parquet")
        self._files += 1
        self.fed += rows

    def source(self) -> DataFrame:
        reader = self.spark.readStream.schema(INPUT_SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.input))

    def operator(self, processor: StatefulProcessor | None = None, **options: Any) -> DataFrame:
        """The operator on this stream. `options` go to transform_with_state."""
        return spark_state.transform_with_state(
            self.source().groupBy("key"),
            processor or RunningTotals(),
            TOTALS_SCHEMA,
            "update",
            "None",
            **options,
        )

    def run(
        self,
        output: DataFrame | None = None,
        sink: Callable[[DataFrame, int], None] | None = None,
        output_mode: str = "update",
    ) -> Any:
        """Run until all fed rows are processed. Returns the ended query, raises the query's
        error."""
        writer = (self.operator() if output is None else output).writeStream
        return self._run(writer.foreachBatch(sink or self.keep).outputMode(output_mode))

    def run_unseen(
        self, sink: Callable[[DataFrame, int], None], output: DataFrame | None = None
    ) -> Any:
        """Run with a foreachBatch function that cowstate does not see, as if Scala code had set the
        function."""
        seen: Any = DataStreamWriter.foreachBatch
        writer = (self.operator() if output is None else output).writeStream
        plain = getattr(seen, "__wrapped__", seen)
        return self._run(plain(writer, sink).outputMode("update"))

    def _run(self, writer: DataStreamWriter) -> Any:
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        with configured(self.spark, self.settings):
            query = writer.trigger(**self.trigger).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return query

    def on_spark(self, output_of: Callable[[Self], DataFrame], output_mode: str = "update") -> Self:
        """Run Spark's own operator over the same input, as another query."""
        own = type(self)(self.spark, self.folder / "spark")
        own.input = self.input
        with configured(self.spark, {PROVIDER_KEY: ROCKSDB}):
            own.query = own.run(output_of(own), output_mode=output_mode)
        return own

    def committed(self) -> int:
        """The number of batches in Spark's commit log."""
        return sum(1 for path in (self.checkpoint / "commits").glob("[0-9]*"))

    def roll_back(self, epoch: int) -> None:
        """Delete commits from `epoch` on, and offsets after `epoch`. The next run repeats `epoch`
        with the recorded offsets."""
        for folder, first in (("commits", epoch), ("offsets", epoch + 1)):
            for path in (self.checkpoint / folder).iterdir():
                number = path.name.removeprefix(".").removesuffix(".crc")
                if number.isdigit() and int(number) >= first:
                    path.unlink()

    def keep(self, batch: DataFrame, epoch: int) -> None:
        """Write a batch as an idempotent sink does."""
        batch.write.mode("overwrite").parquet(str(self.folder / "output" / f"epoch={epoch}"))

    def restart_from(self, batch: int) -> None:
        """Do the steps of "Restart from an earlier batch" in docs/how-to/troubleshoot.md. The next
        run begins with `batch`."""
        self.roll_back(batch)
        for output in (self.folder / "output").iterdir():
            if int(output.name.removeprefix("epoch=")) >= batch:
                shutil.rmtree(output)

    def kept(self) -> list[tuple[int, str, int, int]]:
        """All rows in the sink: (epoch, key, rows, total)."""
        return kept_in(self.folder)

    def totals(self) -> Totals:
        """The newest totals of every key in the sink."""
        return totals_in(self.folder)

    def stores(self) -> list[Path]:
        """The stores of this stream's operators, below the session's root."""
        metadata = json.loads((self.checkpoint / "metadata").read_text())
        root = Path(self.spark.conf.get("spark.cowstate.store", "").removeprefix("file://"))
        return sorted((root / metadata["id"]).iterdir())

    def store(self) -> Path:
        """The only store in `stores`."""
        (store,) = self.stores()
        return store

    def stored(self) -> Totals:
        """The newest totals of every key in the only store."""
        rows = open_store(self.store().as_uri()).read().to_pylist()
        return {row["key"]: (row["rows"], row["total"]) for row in rows}


def feed_rows(folder: Path, epoch: int, rows: list[Row]) -> None:
    """Write the file of an epoch."""
    write_rows(folder / "input" / f"{epoch:05d}.parquet", rows)


def kept_in(folder: Path) -> list[tuple[int, str, int, int]]:
    """All rows in the sink: (epoch, key, rows, total)."""
    return [
        (int(path.name.removeprefix("epoch=")), row["key"], row["rows"], row["total"])
        for path in sorted((folder / "output").iterdir())
        for row in pq.read_table(path).to_pylist()
    ]


def totals_in(folder: Path) -> Totals:
    """The newest totals of every key in the sink."""
    return {key: (rows, total) for _, key, rows, total in sorted(kept_in(folder))}
