"""A query from a Kafka topic to a Kafka topic, in a process of its own. Arguments: plan, broker's
address, folder, partitions. The process runs until its standard input ends."""

from __future__ import annotations

import os
import statistics
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import spark_state
from examples.kafka.broker import connector_jars
from tests.benchmarks.benchmark_script import QUIET, kill_session
from tests.benchmarks.python_state import ROCKSDB
from tests.support.processors.processors import Processor

INPUT, OUTPUT = "rows", "counts"
SCHEMA = "key string, value string"
Plan = Callable[[DataFrame], DataFrame]


class CountEachRow(Processor):
    """Processor that emits a row for each row, with the number of the key's rows up to the row."""

    def init(self, handle: Any) -> None:
        self._count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        count = self._count.get()[0] if self._count.exists() else 0
        for row in rows:
            count += 1
            yield Row(key=key[0], value=f"{row.value},{count}")
        self._count.update((count,))


def passed_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def identity(rows: DataFrame) -> DataFrame:
    return rows.repartition("key").mapInArrow(passed_on, SCHEMA)


def cowstate(rows: DataFrame) -> DataFrame:
    grouped = rows.groupBy("key")
    return spark_state.transform_with_state(grouped, CountEachRow(), SCHEMA, "update", "None")


def row_api(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").transformWithState(CountEachRow(), SCHEMA, "update", "None")


PLANS: dict[str, Plan] = {plan.__name__: plan for plan in (identity, cowstate, row_api)}


def start_session(folder: Path, partitions: int) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings: dict[str, Any] = {
        **QUIET,
        "spark.jars": ",".join(map(str, connector_jars())),
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.cowstate.parallelism": str(partitions),
        "spark.cowstate.store": (folder / "store").as_uri(),
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    builder = SparkSession.builder.master("local[2]").appName("kafka").config(map=settings)
    return spark_state.configure(builder).getOrCreate()


def stop_at_end_of_input(query: StreamingQuery) -> None:
    sys.stdin.read()
    query.stop()


def main() -> None:
    plan, address, folder, partitions = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    spark = start_session(folder, int(partitions))
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address)
    source = source.option("subscribe", INPUT).option("startingOffsets", "earliest")
    rows = source.load().select(F.col("key").cast("string"), F.col("value").cast("string"))
    sink = PLANS[plan](rows).writeStream.format("kafka").outputMode("update")
    sink = sink.option("kafka.bootstrap.servers", address).option("topic", OUTPUT)
    query = sink.option("checkpointLocation", str(folder / "checkpoint")).start()
    try:
        threading.Thread(target=stop_at_end_of_input, args=(query,), daemon=True).start()
        query.awaitTermination()
        batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
        print(statistics.median(batch["durationMs"]["addBatch"] for batch in batches))
    finally:
        kill_session(spark, folder / "scratch")


if __name__ == "__main__":
    main()
