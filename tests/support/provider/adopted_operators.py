"""A transformWithState job that begins on Spark's own operator and continues on cowstate."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

import spark_state
from cowstate.cli.command_line import main
from tests.support.applications import streams
from tests.support.applications.streams import Stream
from tests.support.processors.processors import Processor
from tests.support.provider.adoption_jobs import rewrite
from tests.support.provider.provider_jobs import (
    PROVIDER_KEY,
    ROCKSDB,
    STATE_STORE,
    THROUGH_MANAGER,
    Options,
    configured,
)

AN_HOUR_MS = 3_600_000
SEEN = "key string, seen string"
BATCHES = (
    [("a", 1), ("b", 2), ("a", 3), ("c", 4), (None, 5)],
    [("b", 6), ("d", 7), ("a", 1)],
    [("a", 8), ("b", 9), ("c", 10), ("d", 11), (None, 12), ("e", 13)],
)
ON_SPARK = {
    **THROUGH_MANAGER,
    PROVIDER_KEY: ROCKSDB,
    # In processing time Spark runs batches without rows one after the other, and never ends.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
UNSAFE_ROWS = {f"{STATE_STORE}.encodingFormat": "unsaferow"}
AVRO = {
    f"{STATE_STORE}.encodingFormat": "avro",
    f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
}


class EveryState(Processor):
    """Processor with a value, a list and a map state, which emits the content of all three."""

    ttl_ms: int | None = None

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.total = handle.getValueState(
            "total", "total bigint, parts struct<last: int, texts: array<string>>", self.ttl_ms
        )
        self.last = handle.getListState("last", "value bigint, name string", self.ttl_ms)
        self.kinds = handle.getMapState(
            "kinds", "kind bigint, name string", "times bigint, by map<string, int>", self.ttl_ms
        )

    def keep(self, key: str | None, values: list[int]) -> str:
        total = (self.total.get()[0] if self.total.exists() else 0) + sum(values)
        self.total.update((total, (values[-1], [str(key), "t"])))
        self.last.appendList([(value, None) for value in values])
        for value in values:
            kind = (value % 3, "k")
            times = self.kinds.getValue(kind)[0] if self.kinds.containsKey(kind) else 0
            self.kinds.updateValue(kind, (times + 1, {"x": value}))
        value, parts = self.total.get()
        kinds = sorted((kind[0], times[0], times[1]["x"]) for kind, times in self.kinds.iterator())
        last = [element[0] for element in self.last.get()]
        return json.dumps([value, parts[0], list(parts[1]), last, kinds])

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        values = sorted(row.value for row in rows)
        yield Row(key=str(key[0]), seen=self.keep(str(key[0]), values))


class EveryStateOfFrames(EveryState):
    """EveryState in the pandas API."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        values = [int(value) for value in pd.concat(list(rows))["value"].sort_values()]
        yield pd.DataFrame({"key": [key[0]], "seen": [self.keep(key[0], values)]})


class EveryTimedState(EveryState):
    """EveryState whose values live for an hour. A key with a small value gets a timer for the next
    batch. Every key gets a timer in an hour."""

    ttl_ms = AN_HOUR_MS

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        values = sorted(row.value for row in rows)
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        if values[0] < BATCHES[2][0][1]:
            self.handle.registerTimer(now_ms + 1)
        self.handle.registerTimer(now_ms + AN_HOUR_MS)
        yield Row(key=key[0], seen=self.keep(key[0], values))

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        yield Row(key=key[0], seen="fired")


class AdoptedJob:
    """A stream with one processor. `folder` has the input; copies of the job share the input."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        processor: StatefulProcessor,
        mode: str = "None",
        key: Column | None = None,
    ) -> None:
        self.stream = Stream(spark, folder)
        self.spark = spark
        self.processor = processor
        self.mode = mode
        self.key = key
        self.key_name = "key"
        self.initial: DataFrame | None = None
        self.in_pandas = isinstance(processor, EveryStateOfFrames)

    @property
    def checkpoint(self) -> Path:
        return self.stream.checkpoint

    @property
    def query_id(self) -> str:
        query_id: str = json.loads((self.checkpoint / "metadata").read_text())["id"]
        return query_id

    def feed(self, rows: Any) -> None:
        """Add a file, which is one batch."""
        number = self.stream._files
        self.stream.feed(list(rows))
        os.utime(self.stream.input / f"{number:05d}.parquet", (1_000 + number, 1_000 + number))

    def output(self) -> DataFrame:
        source = self.stream.source()
        if self.key is not None:
            source = source.withColumn("key", self.key)
        source = source.withColumnRenamed("key", self.key_name)
        grouped: Any = source.groupBy(self.key_name)
        method = "transformWithStateInPandas" if self.in_pandas else "transformWithState"
        initial = None if self.initial is None else self.initial.groupBy("key")
        df: DataFrame = getattr(grouped, method)(self.processor, SEEN, "update", self.mode, initial)
        return df

    def on_spark(self, settings: Options = UNSAFE_ROWS) -> None:
        self.stream.settings = {**ON_SPARK, **settings}
        spark_state.disable(self.spark)
        with configured(self.spark, self.stream.settings):
            self.stream.run(self.output())

    def on_cowstate(self) -> None:
        self.stream.settings = THROUGH_MANAGER
        with streams.enabled(self.spark):
            self.stream.run(self.output())

    def copy(self, folder: Path) -> AdoptedJob:
        """A copy of the query with its own id, checkpoint and sink, and the same input."""
        other = AdoptedJob(self.spark, folder, self.processor, self.mode, self.key)
        shutil.rmtree(other.stream.input)
        other.stream.input = self.stream.input
        other.stream._files = self.stream._files
        shutil.copytree(self.checkpoint, other.checkpoint)
        rewrite(
            other.checkpoint / "metadata", lambda text: text.replace(self.query_id, str(uuid4()))
        )
        then = time.time() - 300
        for file in other.checkpoint.rglob("*"):
            os.utime(file, (then, then))
        return other

    def adopt(self, *arguments: str) -> int:
        return main(["adopt", str(self.checkpoint), *arguments])

    def shown(self) -> list[tuple[str, str]]:
        """The rows in the sink, from all batches."""
        rows = self.spark.read.schema(SEEN).parquet(f"{self.stream.folder}/output/*").collect()
        return sorted((str(row.key), row.seen) for row in rows)


def store_of(job: AdoptedJob) -> str:
    """The directory of the job's operator state on cowstate."""
    return f"{job.spark.conf.get('spark.cowstate.store')}/{job.query_id}/operator-0"


cloudpickle.register_pickle_by_value(sys.modules[__name__])
