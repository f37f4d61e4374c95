"""Streams of rows (key, value) from files, run epoch by epoch, with what they should come to."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.readwriter import DataStreamWriter

import spark_state
from tests.support.processors.processors import TOTALS_SCHEMA, RunningTotals
from tests.support.provider.provider_jobs import THROUGH_MANAGER, Options, configured

INPUT_SCHEMA = "key string, value bigint"
Row = tuple[str, int]
Totals = dict[str, tuple[int, int]]


def random_rows(seed: float, count: int, keys: int) -> list[Row]:
    """`count` rows over at most `keys` keys, the same for the same seed."""
    chance = random.Random(seed)
    return [(f"key{chance.randrange(keys)}", chance.randrange(1000)) for _ in range(count)]


def totals_of(rows: list[Row]) -> Totals:
    """The batch computation: key -> (rows, sum of values)."""
    counts: Counter[str] = Counter(key for key, _ in rows)
    sums: Counter[str] = Counter()
    for key, value in rows:
        sums[key] += value
    return {key: (count, sums[key]) for key, count in counts.items()}


class Stream:
    """A query over files in a folder, one file an epoch; started again it goes on.

    `settings` are those that the query starts with. With Spark's own, a batch takes twice as long.
    `trigger` is the query's.

    Output of epoch n goes to `output/epoch=n`, replaced when n runs again, so that what is there
    is what an idempotent sink would hold.
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
        self._files = 0
        self._newest = 0.0

    def feed(self, rows: list[Row]) -> None:
        """Add one file, that is one epoch, of rows."""
        table = pa.table(
            {
                "key": pa.array([key for key, _ in rows], pa.string()),
                "value": pa.array([value for _, value in rows], pa.int64()),
            }
        )
        hidden = self.folder / "next.parquet"
        pq.write_table(table, hidden)
        # Spark reads files in the order of their times, in milliseconds.
        self._newest = max(time.time(), self._newest + 0.01)
        os.utime(hidden, (self._newest, self._newest))
        hidden.rename(self.input / f"{self._files:05d}.parquet")
        self._files += 1
        self.fed += rows

    def source(self) -> DataFrame:
        reader = self.spark.readStream.schema(INPUT_SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.input))

    def operator(self, processor: StatefulProcessor | None = None, **options: Any) -> DataFrame:
        """The operator on this stream; `options` go to transform_with_state."""
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
        """Run until everything fed is processed; returns the ended query, raises its error."""
        writer = (self.operator() if output is None else output).writeStream
        return self._run(writer.foreachBatch(sink or self.keep).outputMode(output_mode))

    def run_unseen(
        self, sink: Callable[[DataFrame, int], None], output: DataFrame | None = None
    ) -> Any:
        """As run, for a sink that cowstate does not see, as if it had been set in Scala."""
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

    def committed(self) -> int:
        """How many batches Spark's commit log has."""
        return sum(1 for path in (self.checkpoint / "commits").glob("[0-9]*"))

    def roll_back(self, epoch: int) -> None:
        """Let `epoch` run again from its recorded offsets, and forget the ones after it."""
        for folder, first in (("commits", epoch), ("offsets", epoch + 1)):
            for path in (self.checkpoint / folder).iterdir():
                number = path.name.removeprefix(".").removesuffix(".crc")
                if number.isdigit() and int(number) >= first:
                    path.unlink()

    def keep(self, batch: DataFrame, epoch: int) -> None:
        """The idempotent sink."""
        batch.write.mode("overwrite").parquet(str(self.folder / "output" / f"epoch={epoch}"))

    def restart_from(self, batch: int) -> None:
        """As "Restart from an earlier batch" in docs/how-to/troubleshoot.md tells. The next run
        begins with this batch."""
        self.roll_back(batch)
        for output in (self.folder / "output").iterdir():
            if int(output.name.removeprefix("epoch=")) >= batch:
                shutil.rmtree(output)

    def kept(self) -> list[tuple[int, str, int, int]]:
        """Everything in the sink: (epoch, key, rows, total)."""
        return [
            (int(path.name.removeprefix("epoch=")), row["key"], row["rows"], row["total"])
            for path in sorted((self.folder / "output").iterdir())
            for row in pq.read_table(path).to_pylist()
        ]

    def totals(self) -> Totals:
        """The newest totals of every key in the sink."""
        return {key: (rows, total) for _, key, rows, total in sorted(self.kept())}

    def stores(self) -> list[Path]:
        """The stores that this stream's operators keep below the session's root."""
        metadata = json.loads((self.checkpoint / "metadata").read_text())
        root = Path(self.spark.conf.get("spark.cowstate.store", "").removeprefix("file://"))
        return sorted((root / metadata["id"]).iterdir())

    def store(self) -> Path:
        """The only one of `stores`."""
        (store,) = self.stores()
        return store
