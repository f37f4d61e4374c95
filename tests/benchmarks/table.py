"""State as a table against Spark's own readers and sinks.

    python tests/benchmarks/table.py [--rounds 2] [--keys 4000000] [--out FILE]

A streaming aggregation (count and sum by key; RocksDB provider, changelog checkpointing) fills its
state with `--keys` keys, and then changes a fifth of the keys in each batch. The changes of each
batch go into a table. State and table then hold the same rows, and are read in turn:

    snapshot     spark.read.format("statestore") : spark.read.format("cowstate"), all columns
    change feed  the same with readChangeFeed, over the batches after the fill; without preimages,
                 because Spark's feed has no preimages
    preimages    the change feed with preimages, for which the state at its start is read; the ratio
                 is of the rows that are the same in both feeds

Then one stream of rows is written, in turn, to parquet files and to a table:

    sink         new keys only, and the same keys again in every batch

Times are of Spark actions (sums of columns) and of batches (triggerExecution), as medians. For
reads the CPU seconds of all processes are compared, too: on a machine with other work they are
steadier than times.
The benchmark compares the answers of both sides. Ratios are printed beside the requirements, and
fail nothing. A merge into Delta is not measured: delta-spark from PyPI comes without its jar.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_state
from tests.benchmarks.benchmark_script import QUIET, STATE_PACKAGE, parser_of, write_results

STATE_STORE = "spark.sql.streaming.stateStore"
ROCKSDB = f"{STATE_PACKAGE}.RocksDBStateStoreProvider"
FILL = 5
BATCHES = 5
LAST = FILL + BATCHES - 1
SINK_BATCHES = 12
SINK_WARM = 4
REQUIRED = {"snapshot": 3.0, "change feed": 3.0, "preimages": None}
SINK_AT_MOST = 2.0


def start_session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("table")
    settings = {
        "spark.driver.memory": "4g",
        **QUIET,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
        f"{STATE_STORE}.maintenanceShutdownTimeout": "5s",
    }
    spark_state.configure(builder)
    builder.config(map=settings)
    return builder.config(f"{STATE_STORE}.providerClass", ROCKSDB).getOrCreate()


def numbers(spark: SparkSession, rows: int) -> DataFrame:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    return source.load()


def run(writer: Any, last_batch: int) -> list[float]:
    """Run a query up to a batch. Returns the milliseconds of each batch."""
    query = writer.start()
    while (query.lastProgress or {"batchId": -1})["batchId"] < last_batch:
        if query.exception():
            raise query.exception()
        time.sleep(0.1)
    query.stop()
    return [p["durationMs"]["triggerExecution"] for p in query.recentProgress][: last_batch + 1]


def fill(spark: SparkSession, folder: Path, keys: int) -> None:
    """Fill the state and the table with the same rows in the same batches."""
    rows = numbers(spark, keys // FILL)
    key = F.when(F.col("value") < keys, F.col("value")).otherwise(
        F.pmod(F.xxhash64("value"), F.lit(keys))
    )
    counts = rows.groupBy(key.alias("key")).agg(
        F.count("*").alias("count"), F.sum("value").alias("total")
    )

    def upsert(batch: DataFrame, _: int) -> None:
        table = batch.write.format("cowstate").mode("append").option("keys", "key")
        table.save(str(folder / "table"))

    writer = counts.writeStream.outputMode("update").foreachBatch(upsert)
    writer = writer.option("checkpointLocation", str(folder / "query"))
    run(writer, LAST)


class Cost(NamedTuple):
    """Seconds of an action, and CPU seconds of all processes of the session."""

    wall: float
    cpu: float


def cost(spark: SparkSession, action: Callable[[], Any]) -> tuple[Cost, Any]:
    began, before = time.perf_counter(), cpu_seconds(spark)
    answer = action()
    wall, after = time.perf_counter() - began, cpu_seconds(spark)
    return Cost(wall, sum(after[pid] - before.get(pid, 0.0) for pid in after)), answer


def cpu_seconds(spark: SparkSession) -> dict[int, float]:
    """The CPU seconds of the JVM and of its Python workers that run now, by process."""
    gateway: Any = spark.sparkContext._gateway
    jvm = psutil.Process(gateway.proc.pid)
    seconds: dict[int, float] = {}
    for process in (jvm, *jvm.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            seconds[process.pid] = times.user + times.system
    return seconds


def sums(df: DataFrame, *columns: str) -> Any:
    return df.agg(F.count("*"), *[F.sum(column) for column in columns]).collect()[0]


def read_once(spark: SparkSession, folder: Path) -> dict[str, tuple[Cost, Cost]]:
    """Costs of Spark's reader and of cowstate's reader, by figure."""
    state = spark.read.format("statestore").option("batchId", LAST)
    query, table = str(folder / "query"), str(folder / "table")
    theirs, expected = cost(spark, lambda: sums(state.load(query), "value.count", "value.sum"))
    rows = spark.read.format("cowstate").option("versionAsOf", LAST)
    ours, actual = cost(spark, lambda: sums(rows.load(table), "count", "total"))
    assert tuple(expected) == tuple(actual), (expected, actual)
    feed = spark.read.format("statestore").option("readChangeFeed", "true")
    feed = feed.option("changeStartBatchId", FILL).option("changeEndBatchId", LAST)
    their_feed, expected = cost(spark, lambda: sums(feed.load(query), "value.count"))
    mine = spark.read.format("cowstate").option("readChangeFeed", "true")
    mine = mine.option("startingVersion", FILL).option("endingVersion", LAST)
    took = {"snapshot": (theirs, ours)}
    for figure, preimages, same in (
        ("change feed", "false", F.lit(True)),
        ("preimages", "true", F.col("_change_type") != "update_preimage"),
    ):
        changes = mine.option("preimages", preimages).load
        our_feed, actual = cost(
            spark, lambda load=changes, same=same: sums(load(table).where(same), "count")
        )
        assert tuple(expected) == tuple(actual), (figure, expected, actual)
        took[figure] = (their_feed, our_feed)
    return took


def sink_once(spark: SparkSession, folder: Path, rows: int, keys: int) -> tuple[float, float]:
    """Milliseconds of a batch into parquet files and into a table."""
    columns = [
        F.pmod("value", F.lit(keys)).alias("id"),
        F.col("value").alias("amount"),
        F.concat(F.lit("customer "), F.pmod("value", F.lit(1000))).alias("name"),
    ]
    medians = []
    for name, options in (("parquet", {}), ("cowstate", {"keys": "id"})):
        writer = numbers(spark, rows).select(*columns).writeStream.format(name).options(**options)
        writer = writer.option("path", str(folder / name))
        writer = writer.option("checkpointLocation", str(folder / f"{name}-query"))
        medians.append(statistics.median(run(writer, SINK_BATCHES - 1)[SINK_WARM:]))
    return medians[0], medians[1]


def main() -> None:
    """Measure, print, and write the JSON."""
    sizes = {"rounds": 2, "keys": 4_000_000, "sink_rows": 200_000}
    given = parser_of(__doc__, "table", **sizes).parse_args()
    spark = start_session()
    reads: dict[str, list[tuple[Cost, Cost]]] = {name: [] for name in REQUIRED}
    sinks: dict[str, list[tuple[float, float]]] = {"new keys": [], "same keys": []}
    with tempfile.TemporaryDirectory(prefix="cowstate-benchmark-") as name:
        root = Path(name)
        fill(spark, root, given.keys)
        for number in range(given.rounds + 1):
            for figure, pair in read_once(spark, root).items():
                if number:  # the first round warms up
                    reads[figure].append(pair)
        for number in range(given.rounds):
            for label, keys in (("new keys", 2**62), ("same keys", given.sink_rows)):
                folder = root / f"sink-{number}-{keys}"
                sinks[label].append(sink_once(spark, folder, given.sink_rows, keys))
    spark.stop()
    result: dict[str, Any] = {"keys": given.keys, "sink_rows": given.sink_rows}
    for figure, pairs in reads.items():
        ratio = statistics.median(theirs.wall / ours.wall for theirs, ours in pairs)
        of_cpu = statistics.median(theirs.cpu / ours.cpu for theirs, ours in pairs)
        ratios = {"statestore_over_cowstate": ratio, "of_cpu": of_cpu}
        result[figure] = {"wall_and_cpu_seconds": pairs, **ratios}
        required = REQUIRED[figure]
        verdict = "nothing required" if required is None else f"{required} required: "
        verdict += "" if required is None else "met" if ratio >= required else "MISSED"
        print(f"{figure}: {ratio:.2f} times statestore's rows/s, {verdict}; {of_cpu:.2f} by CPU")
    for label, pairs in sinks.items():
        ratio = statistics.median(ours / theirs for theirs, ours in pairs)
        result[f"sink, {label}"] = {"ms": pairs, "cowstate_over_parquet": ratio}
        verdict = "met" if ratio <= SINK_AT_MOST else "MISSED"
        print(f"sink, {label}: {ratio:.2f} of parquet's time, at most {SINK_AT_MOST}: {verdict}")
    write_results(given.out, result)


if __name__ == "__main__":
    main()
