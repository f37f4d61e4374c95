"""A program that spark-submit starts: submitted_job.py FOLDER STEP …, in a folder for its files.

STEP      count: a stream of counts into a table, in output mode update, in a session of `configure`
          stock: a checkpoint of another provider goes on, in a session of Spark's
          transform: Spark's own transformWithState, planned in a session of Spark's
          metrics: Spark's metrics during a query, in a session of Spark's with the jar
          plain: `configure` is called while a session of Spark's runs; the session is then stopped
Each step prints its result.
"""

from __future__ import annotations

import re
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from shutil import copy
from typing import Any

from pyspark.sql import SparkSession, functions

import spark_state
from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
from spark_state.spark.session.worker_sockets import SOCKETS_KEY
from tests.support.processors.processors import TOTALS_SCHEMA, RunningTotals
from tests.support.provider.provider_jobs import HDFS


def configured() -> SparkSession:
    builder = spark_state.configure(SparkSession.builder)
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    return builder.config("spark.ui.enabled", "false").getOrCreate()


def count(folder: Path) -> None:
    spark = configured()
    query = run_counts(spark, folder)
    table = spark.read.format("cowstate").load(str(folder / "table"))
    (operator,) = query.recentProgress[-1]["stateOperators"]
    plan = query._jsq.explainInternal(False)
    print("counted", sorted(tuple(row) for row in table.collect()))
    print("metrics", "cowstateCommitMs" in operator["customMetrics"])
    print("plan", "StatePrefetch" in plan)
    print("sockets", spark.sparkContext.getConf().get(SOCKETS_KEY))


def run_counts(spark: SparkSession, folder: Path) -> Any:
    rows = spark.readStream.schema("id long").parquet(str(folder / "rows"))
    counts = rows.groupBy(functions.expr("id % 3").alias("k")).count()
    writer = counts.writeStream.format("cowstate").option("keys", "k").outputMode("update")
    writer = writer.option("path", str(folder / "table"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def stock(folder: Path) -> None:
    spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
    for number, provider in enumerate((HDFS, PROVIDER_CLASS)):
        copy(folder / "rows" / "ids.parquet", folder / "rows" / f"more-{number}.parquet")
        spark.conf.set(PROVIDER_KEY, provider)
        run_counts(spark, folder)


def transform(folder: Path) -> None:
    spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
    rows = spark.readStream.schema("id long").parquet(str(folder / "rows"))
    words = rows.selectExpr("string(id % 3) AS key", "id AS value").groupBy("key")
    for _ in range(2):
        words.transformWithState(RunningTotals(), TOTALS_SCHEMA, "update", "None")


def metrics(folder: Path) -> None:
    builder = SparkSession.builder.config("spark.ui.port", "0")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    rows = spark.readStream.schema("id long").parquet(str(folder / "rows"))
    counts = rows.groupBy(functions.expr("id % 3").alias("k")).count()
    writer = counts.writeStream.format("noop").outputMode("update").queryName("counts")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    query.processAllAvailable()
    other = spark.newSession()  # where another query may have the same name
    other_counts = other.readStream.schema("id long").parquet(str(folder / "rows")).distinct()
    writer = other_counts.writeStream.format("noop").outputMode("append").queryName("counts")
    same_name = writer.option("checkpointLocation", str(folder / "other")).start()
    same_name.processAllAvailable()
    # Spark tells its listeners a little later.
    await_shown(spark, lambda shown: len(shown) == 2)
    same_name.stop()
    print("shown", await_shown(spark, lambda shown: len(shown) == 1))
    query.stop()
    print("shown", await_shown(spark, lambda shown: not shown))
    spark.stop()


def await_shown(
    spark: SparkSession, condition: Callable[[dict[str, dict[str, int]]], bool]
) -> dict[str, dict[str, int]]:
    """Wait for a minute until the shown metrics meet a condition. Return the metrics."""
    deadline = time.monotonic() + 60
    while not condition(shown := shown_metrics(spark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return shown


def shown_metrics(spark: SparkSession) -> dict[str, dict[str, int]]:
    """Some metrics of stateful operators on the Prometheus page of Spark's UI, by source."""
    with urllib.request.urlopen(f"{spark.sparkContext.uiWebUrl}/metrics/prometheus") as page:
        text = page.read().decode()
    names = "numRowsTotal|numRowsUpdated|cowstateMappedBytes"
    shown = defaultdict(dict)
    for source, name, value in re.findall(rf"_(cowstate_\w+)_({names})_Value\S* (\d+)", text):
        shown[source][name] = int(value)
    return dict(shown)


def plain(_: Path) -> None:
    stop()
    SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
    try:
        configured()
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
    stop()


def stop() -> None:
    spark = SparkSession.getActiveSession()
    if spark is not None:
        spark.stop()


def main() -> None:
    folder = Path(sys.argv[1])
    steps = {
        "count": count,
        "stock": stock,
        "transform": transform,
        "metrics": metrics,
        "plain": plain,
    }
    for step in sys.argv[2:]:
        try:
            steps[step](folder)
        except Exception as error:
            print(f"{step} failed: {type(error).__name__}: {error}")
    stop()


if __name__ == "__main__":
    main()
