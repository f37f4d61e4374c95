"""A streaming aggregation as a user writes it.

    python -m tests.support.applications.provider_application FOLDER

The query counts and sums the values of each key over the files in FOLDER/input, one file per epoch,
on cowstate's provider. Tests feed the folder before, kill this process or its executors meanwhile,
and read the sink afterwards.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_state
from tests.support.applications.streams import Stream
from tests.support.sessions.java_options import DRIVER_OPTIONS
from tests.support.sessions.spark_session import stop_spark

STATE_STORE = "spark.sql.streaming.stateStore"


def totals(stream: Stream) -> DataFrame:
    aggregates = F.count("*").alias("rows"), F.sum("value").alias("total")
    return stream.source().groupBy("key").agg(*aggregates)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--checkpoint-format", default="1")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = (
        spark_state.configure(SparkSession.builder)
        .master(arguments.master)
        .config("spark.ui.enabled", "false")
        .config("spark.executor.extraJavaOptions", os.environ.get(DRIVER_OPTIONS, ""))
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.local.dir", str(arguments.folder / "scratch"))
        .config("spark.sql.warehouse.dir", str(arguments.folder / "warehouse"))
        .config(f"{STATE_STORE}.checkpointFormatVersion", arguments.checkpoint_format)
        .config(f"{STATE_STORE}.maintenanceInterval", "200ms")
        .config(f"{STATE_STORE}.minDeltasForSnapshot", "3")
        .config("spark.sql.streaming.minBatchesToRetain", "4")
    )
    for entry in arguments.conf:
        key, _, value = entry.partition("=")
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    stream = Stream(spark, arguments.folder, settings={})
    try:
        stream.run(totals(stream))
    finally:
        stop_spark(spark)


if __name__ == "__main__":
    main()
