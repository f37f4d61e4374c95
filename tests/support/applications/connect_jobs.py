"""Jobs that clients of Spark Connect run.

    python -m tests.support.applications.connect_jobs URL

The program reads lines [FOLDER, JOB, {…}] as JSON. Each job has a session of its own, and prints
its result as JSON. `URL` may be a local master: then `configure` starts a server in this process,
and all jobs share a session.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from pyspark import SparkContext
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQueryListener

import spark_state
from spark_state.spark.session.session_facts import session_facts
from spark_state.spark.session.worker_sockets import SOCKETS_KEY
from tests.support.applications.existing_jobs import by_rows, last_seen
from tests.support.processors.arrow_totals import ArrowTotals
from tests.support.processors.broadcast_rules import ALERTS, Judges
from tests.support.processors.initial_states import BeginsWith
from tests.support.processors.processors import TOTALS_SCHEMA, RunningTotals, SeesTime
from tests.support.provider.provider_jobs import PROVIDER_KEY, ROCKSDB
from tests.support.sessions.connect_server import ANSWER, SETTINGS

ROWS = "key string, value bigint"


# Suffix of the name of each query's checkpoint. Hadoop would read the suffix as a glob pattern.
CHECKPOINT_SUFFIX = " checkpoint [1] {a,b}*?"


class Fires(RunningTotals):
    """RunningTotals that also emits Row(key, rows=-1, total) half a second after each row."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self._handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 500)
        yield from super().handleInputRows(key, rows, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        yield Row(key=key[0], rows=-1, total=self._totals.get()[1])


def watermarked(df: DataFrame) -> DataFrame:
    return df.withColumn("at", F.timestamp_millis("value")).withWatermark("at", "10 seconds")


def source(spark: SparkSession, folder: Path, name: str = "input") -> DataFrame:
    reader = spark.readStream.schema(ROWS).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder / name))


def totals(df: DataFrame, **options: Any) -> DataFrame:
    return spark_state.transform_with_state(
        df.groupBy("key"), RunningTotals(), TOTALS_SCHEMA, "update", "None", **options
    )


def started(output: DataFrame, folder: Path, name: str, **trigger: Any) -> Any:
    writer = output.writeStream.format("parquet").option("path", str(folder / name))
    writer = writer.option("checkpointLocation", str(folder / f"{name}{CHECKPOINT_SUFFIX}"))
    return writer.trigger(**(trigger or {"availableNow": True})).start()


def run(output: DataFrame, folder: Path, name: str) -> Any:
    """Run until all input is processed. The output rows are in `folder/name`."""
    query = started(output, folder, name)
    query.awaitTermination()
    return query


def run_totals(spark: SparkSession, folder: Path, parallelism: str) -> Any:
    spark.conf.set("spark.cowstate.parallelism", parallelism)
    return run(totals(source(spark, folder)), folder, "totals").id


def run_in_arrow(spark: SparkSession, folder: Path) -> None:
    output = spark_state.transform_with_state_in_arrow(
        source(spark, folder).groupBy("key"), ArrowTotals(), TOTALS_SCHEMA, "update", "None"
    )
    run(output, folder, "arrow")


def run_existing(spark: SparkSession, folder: Path, enabled: bool) -> None:
    """Run a job written for Spark's own operator, on cowstate or on Spark."""
    if enabled:
        spark_state.enable(spark)
    else:
        spark_state.disable(spark)
        spark.conf.set(PROVIDER_KEY, ROCKSDB)
    run(last_seen(watermarked(source(spark, folder))), folder, f"existing-{enabled}")


def through_a_view(spark: SparkSession, folder: Path) -> list[str]:
    """Run two operators in a row. The client knows the first operator only as the name of a
    view."""
    spark_state.enable(spark)
    by_rows(source(spark, folder)).createOrReplaceTempView("first")
    second = by_rows(spark.sql("SELECT key, total AS value FROM first"))
    query = run(second, folder, "view")
    return sorted(path.name for path in (folder / "store" / query.id).iterdir())


class Heard(StreamingQueryListener):
    """Listener that keeps the operator names from the progress events of each batch."""

    def __init__(self) -> None:
        self.operators: dict[int, list[str]] = {}
        self.is_over = threading.Event()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        operators = event.progress.stateOperators
        self.operators[event.progress.batchId] = [operator.operatorName for operator in operators]

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self.is_over.set()


@contextmanager
def counted_jobs(spark: SparkSession) -> Iterator[list[Any]]:
    """Record an entry for each job whose rows the client collects."""
    frames: Any = type(spark.range(1))
    jobs: list[Any] = []

    def collect(df: DataFrame) -> list[Row]:
        jobs.append(df)
        return list(collected(df))

    collected, frames.collect = frames.collect, collect
    try:
        yield jobs
    finally:
        frames.collect = collected


def progress(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """The progress of a query with two operators and of a query without operators, from all sources
    that a client has: listener, lastProgress, recentProgress and spark_state.progress."""
    spark_state.enable(spark)
    plain = run(source(spark, folder), folder, "plain")  # before an operator is planned
    listener = Heard()
    spark.streams.addListener(listener)
    first = totals(source(spark, folder), name="totals").selectExpr("key", "total AS value")
    query = run(by_rows(first), folder, "progress")
    assert listener.is_over.wait(120)
    spark.streams.removeListener(listener)
    with counted_jobs(spark) as jobs_of_plain:
        lasts = [len(plain.lastProgress.stateOperators)]
    with counted_jobs(spark) as jobs:
        told = spark_state.progress(query, subtasks=True)
    last, recent = query.lastProgress, query.recentProgress
    spark_state.disable(spark)
    lasts.append(len(query.lastProgress.stateOperators))
    return {
        "heard": listener.operators,
        "last": [[o.operatorName, o.numRowsTotal] for o in last.stateOperators],
        "json": [operator["operatorName"] for operator in json.loads(last.json)["stateOperators"]],
        "recent": [len(progress.stateOperators) for progress in recent],
        "told": [[at.name, at.epoch, at.rows_total, len(at.subtasks)] for at in told],
        "jobs, of plain": [len(jobs), len(jobs_of_plain)],
        "plain, disabled": lasts,
        "refused": _error(lambda: spark_state.progress(plain)),
    }


def metrics(spark: SparkSession, folder: Path) -> list[list[Any]]:
    """Name, operator and value of each sample of a scrape, while an operator of cowstate and an
    aggregation run."""
    spark_state.enable(spark)
    rows = source(spark, folder)
    outputs = {"operator": totals(rows, name="totals"), "aggregation": rows.groupBy("key").count()}
    with spark_state.serve_metrics(spark) as server:
        queries = [
            output.writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", str(folder / f"{name}{CHECKPOINT_SUFFIX}"))
            .start()
            for name, output in outputs.items()
        ]
        for query in queries:
            query.processAllAvailable()
        with urllib.request.urlopen(server.url, timeout=60) as response:
            families = [*text_string_to_metric_families(response.read().decode())]
        for query in queries:
            query.stop()
    return [
        [sample.name, sample.labels.get("operator", ""), sample.value]
        for family in families
        for sample in family.samples
    ]


def in_processing_time(spark: SparkSession, folder: Path, keys: int) -> list[list[Any]]:
    """Run until the timers of `keys` keys have fired. No input rows arrive meanwhile."""
    grouped = source(spark, folder).groupBy("key")
    output = spark_state.transform_with_state(
        grouped, Fires(), TOTALS_SCHEMA, "append", "ProcessingTime"
    )
    query = started(output, folder, "fired", processingTime="0 seconds")
    kept: list[list[Any]] = []
    deadline = time.monotonic() + 300
    while sum(row[1] == -1 for row in kept) < keys:
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, kept
        time.sleep(0.5)
        if query.lastProgress is not None:
            kept = [list(row) for row in spark.read.parquet(str(folder / "fired")).collect()]
    query.stop()
    return sorted(kept)


def with_initial_state(spark: SparkSession, folder: Path) -> None:
    rows = [("a", 100), ("b", 200), ("a", 1000), ("only here", 5)]
    initial = spark.createDataFrame(rows, "name string, total bigint")
    shuffled = initial.groupBy("name", "total").count().select("total", "name")
    output = spark_state.transform_with_state(
        source(spark, folder).groupBy("key"),
        BeginsWith(),
        TOTALS_SCHEMA,
        "update",
        "None",
        shuffled.groupBy("name"),
    )
    run(output, folder, "initial")


def with_broadcast(spark: SparkSession, folder: Path) -> None:
    payments = source(spark, folder, "payments").select(
        F.col("key").alias("card"), F.lit("NO").alias("country"), F.col("value").alias("amount")
    )
    limits = source(spark, folder, "limits").select(
        F.col("key").alias("country"), F.lit(1).alias("version"), F.col("value").alias("most")
    )
    output = spark_state.transform_with_state(
        payments.groupBy("card"), Judges(), ALERTS, "append", "None", broadcast={"limits": limits}
    )
    run(output, folder, "alerts")


def keys(spark: SparkSession, folder: Path) -> dict[str, list[Any]]:
    """Output of a batch DataFrame for grouping keys of several forms."""
    df = spark.createDataFrame([("a", 1), ("b", 2), ("a", 3)], ROWS)
    dotted, aliased = df.withColumnRenamed("key", "a.key"), df.alias("x")
    grouped = {
        "dotted": dotted.groupBy("`a.key`"),
        "upper": df.groupBy(F.upper("key").alias("key")),
        "case": df.groupBy("KEY"),
        "qualified": aliased.groupBy("x.key"),
        "field": df.select("value", F.struct("key").alias("s")).groupBy("s.key"),
        "repeated": df.select("key", "value", F.lit(1).alias("key")).groupBy(df["key"]),
    }
    return {
        name: sorted(
            tuple(row)
            for row in spark_state.transform_with_state(
                rows, RunningTotals(), TOTALS_SCHEMA, "update", "None"
            ).collect()
        )
        for name, rows in grouped.items()
    }


def on_spark_instead(spark: SparkSession, folder: Path) -> list[Any]:
    """Plan a key with a collation, in a session with fallback to Spark. Returns the warning, and
    True if the plan has Spark's operator."""
    spark_state.enable(spark, fallback="spark")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        collated = spark.range(1).selectExpr("collate('a', 'UTF8_LCASE') AS key", "id AS value")
        planned = by_rows(collated)
    text = planned._explain_string(extended=True)
    return [str(warned[-1].message), "TransformWithState" in text]


def with_artifact(spark: SparkSession, folder: Path) -> None:
    """Run a processor from a module that only the client has, until the client sends the module."""
    module = folder / "modules" / "processors_of_client.py"
    module.parent.mkdir()
    module.write_text(
        "from tests.support.processors.processors import RunningTotals as R\nclass P(R): ...\n"
    )
    sys.path.append(str(module.parent))
    spark.addArtifacts(str(module), pyfile=True)
    output = spark_state.transform_with_state(
        source(spark, folder).groupBy("key"),
        import_module(module.stem).P(),
        TOTALS_SCHEMA,
        "update",
        "None",
    )
    run(output, folder, "sent")


def refusals(spark: SparkSession, folder: Path) -> dict[str, list[str]]:
    """The errors of calls that must fail: the classes and the message of each error."""
    df = source(spark, folder)
    store = str(spark.conf.get("spark.cowstate.store"))

    def timed(rows: DataFrame, mode: str = "EventTime", column: str = "") -> DataFrame:
        schema = f"{TOTALS_SCHEMA}, at timestamp"
        return spark_state.transform_with_state(
            rows.groupBy("key"), SeesTime(), schema, "append", mode, None, column
        )

    def with_setting(key: str, value: str | None) -> DataFrame:
        try:
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)
            return totals(df)
        finally:
            spark.conf.set("spark.cowstate.store", store)
            spark.conf.unset("spark.cowstate.restoreFrom")

    def state_of_spark() -> None:
        spark_state.disable(spark)
        spark.conf.set(PROVIDER_KEY, ROCKSDB)
        run(by_rows(df), folder, "of-spark")
        run(totals(df), folder, "of-spark")

    def read_state(form: str, **options: str) -> DataFrame:
        checkpoint = folder / f"read{CHECKPOINT_SUFFIX}"
        return spark.read.format(form).options(**options).load(str(checkpoint))

    spark_state.enable(spark)
    run(by_rows(df), folder, "read")
    twice = watermarked(df).union(watermarked(df))
    windows = watermarked(df).groupBy(F.window("at", "10 seconds"), "key").count()
    calls: dict[str, Callable[[], Any]] = {
        "foreachBatch": lambda: totals(df).writeStream.foreachBatch(lambda *_: None).start(),
        "watermarks": lambda: timed(twice),
        "behind an aggregation": lambda: timed(windows),
        "no watermark": lambda: timed(df),
        "output column": lambda: timed(watermarked(df), column="rows"),
        "no store": lambda: with_setting("spark.cowstate.store", None),
        "relative store": lambda: with_setting("spark.cowstate.store", "here"),
        "bad store": lambda: with_setting("spark.cowstate.store", "/proc/nothing"),
        "restoreFrom": lambda: with_setting("spark.cowstate.restoreFrom", str(folder / "none")),
        "state": lambda: read_state("statestore", stateVarName="total"),
        "metadata": lambda: read_state("state-metadata"),
        "state of Spark": state_of_spark,
        "configure": lambda: spark_state.configure(
            SparkSession.builder.remote(sys.argv[1])
        ).getOrCreate(),
    }
    return {name: _error(call) for name, call in calls.items()}


def _error(call: Callable[[], Any]) -> list[str]:
    try:
        call()
    except Exception as error:
        return [",".join(kind.__name__ for kind in type(error).__mro__), str(error)]
    return ["nothing", ""]


def configured(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Results that need a session from `configure`: the provider, tables of the catalog, update
    mode."""
    counts = source(spark, folder).groupBy("key").count()
    writer = counts.writeStream.format("cowstate").option("keys", "key").outputMode("update")
    writer = writer.option("checkpointLocation", str(folder / "counts-checkpoint"))
    writer.trigger(availableNow=True).start(str(folder / "counts")).awaitTermination()
    spark.read.format("cowstate").load(str(folder / "counts")).createTempView("counted")
    spark.sql("SELECT * FROM counted").write.format("cowstate").option("keys", "key").saveAsTable(
        "copied"
    )
    changes = spark.readStream.format("cowstate").option("startingVersion", "0")
    changes = changes.load(str(folder / "counts"))
    run(changes.select("key", "_change_type"), folder, "changes")
    planned = by_rows(source(spark, folder))._explain_string(extended=True)
    facts, context = session_facts(spark), SparkContext._active_spark_context
    assert context is not None, "the server of this client is in its process, too"
    return {
        "cores": [facts.default_parallelism, facts.cores_per_executor],
        "cores of the server": context.defaultParallelism,
        "sockets": context.getConf().get(SOCKETS_KEY),
        "state": [
            path.suffix for path in sorted((folder / "counts-checkpoint/state/0/0").iterdir())
        ],
        "table": sorted(map(tuple, spark.table("copied").collect())),
        "enabled": "operator-0_cowstate_" in planned,
        "partitions": _error(
            lambda: source(spark, folder).writeStream.format("cowstate").partitionBy("key")
        ),
    }


def tables(spark: SparkSession, folder: Path) -> list[Any]:
    """Read and write tables without the jar."""
    rows = spark.createDataFrame([("a", 1), ("b", 2)], ROWS)
    rows.write.format("cowstate").option("keys", "key").mode("append").save(str(folder / "table"))
    writer = source(spark, folder).writeStream.format("cowstate").option("keys", "key")
    writer = writer.option("checkpointLocation", str(folder / "table-checkpoint"))
    writer = writer.option("onDuplicate", "last").trigger(availableNow=True)
    writer.start(str(folder / "table")).awaitTermination()
    changes = spark.readStream.format("cowstate").option("readChangeFeed", "true")
    changes = changes.option("startingVersion", "0")
    run(changes.load(str(folder / "table")).select("key", "_change_type"), folder, "changes")
    return sorted(map(tuple, spark.read.format("cowstate").load(str(folder / "table")).collect()))


def session(url: str, folder: Path) -> SparkSession:
    builder = SparkSession.builder.remote(url)
    if url.startswith("local"):
        for key, value in SETTINGS.items():
            builder = builder.config(key, value)
        builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        builder = builder.config("spark.cowstate.enabled", "true")
        builder = spark_state.configure(builder)
    return builder.getOrCreate()


def main() -> None:
    url = sys.argv[1]
    spark: SparkSession | None = None
    for line in sys.stdin:
        folder, job, arguments = json.loads(line)
        spark = spark or session(url, Path(folder))
        spark.conf.set("spark.cowstate.store", str(Path(folder) / "store"))
        try:
            answer = {"result": globals()[job](spark, Path(folder), **arguments)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        if not url.startswith("local"):
            spark.stop()
            spark = None
        print(ANSWER + json.dumps(answer), flush=True)
    if spark is not None:
        spark.stop()


if __name__ == "__main__":
    main()
