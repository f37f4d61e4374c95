"""The totals on Spark: a row processor and an Arrow processor of cowstate, an aggregation on the
provider. Arguments: plan, input folder, working folder, files of a batch, files to warm up.

The first files warm up the session. The figures are of the batches of the other files.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_state
from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
from tests.benchmarks.benchmark_script import QUIET, kill_session
from tests.benchmarks.nexmark.in_spark import STATE_STORE
from tests.benchmarks.nexmark.meter import cpu_seconds
from tests.support.processors.arrow_totals import ArrowTotals
from tests.support.processors.processors import RunningTotals

CORES = 2
SCHEMA = "key string, value bigint"
OUTPUT = "key string, rows bigint, total bigint"


def in_rows(rows: DataFrame) -> DataFrame:
    grouped = rows.groupBy("key")
    return spark_state.transform_with_state(grouped, RunningTotals(), OUTPUT, "update", "none")


def in_arrow(rows: DataFrame) -> DataFrame:
    grouped = rows.groupBy("key")
    return spark_state.transform_with_state_in_arrow(
        grouped, ArrowTotals(), OUTPUT, "update", "none"
    )


def on_provider(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").agg(F.count("*").alias("rows"), F.sum("value").alias("total"))


PLANS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "cowstate": in_rows,
    "cowstate_arrow": in_arrow,
    "cowstate_provider": on_provider,
}


def start_session(folder: Path) -> SparkSession:
    settings: dict[str, bool | float | int | str | None] = {
        **QUIET,
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.shuffle.partitions": str(CORES),
        PROVIDER_KEY: PROVIDER_CLASS,
        "spark.cowstate.store": (folder / "store").as_uri(),
        f"{STATE_STORE}.maintenanceInterval": "10s",
    }
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("totals")
    return spark_state.configure(builder).config(map=settings).getOrCreate()


def main() -> None:
    plan, source, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    files_of_batch, warm = int(sys.argv[4]), int(sys.argv[5])
    arrived, output = folder / "arrived", folder / "output"
    arrived.mkdir()
    files = sorted(source.glob("*.csv"))
    spark = start_session(folder)
    reader = spark.readStream.schema(SCHEMA).option("header", True)
    rows = reader.option("maxFilesPerTrigger", files_of_batch).csv(str(arrived))

    def write(batch: DataFrame, number: int) -> None:
        batch.write.parquet(f"{output}/batch={number}")

    writer = PLANS[plan](rows).writeStream.outputMode("update").foreachBatch(write)
    try:
        for file in files[:warm]:
            file.rename(arrived / file.name)
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
        query.processAllAvailable()
        began, cpu = time.time(), cpu_seconds()
        for file in files[warm:]:
            file.rename(arrived / file.name)
        query.processAllAvailable()
        figures = {"began": began, "ended": time.time(), "cpu_s": cpu_seconds() - cpu}
        query.stop()
        last = F.max(F.struct("rows", "total")).alias("last")
        totals = spark.read.parquet(str(output)).groupBy("key").agg(last).collect()
        figures["totals"] = {row.key: (row.last.rows, row.last.total) for row in totals}
    finally:
        kill_session(spark, folder / "scratch")
    (folder / "figures.json").write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
