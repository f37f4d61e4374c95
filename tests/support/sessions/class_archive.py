"""Writes the archive of classes of test sessions: python -m tests.support.sessions.class_archive

A session runs an operator, a table and the provider, and ends. The session's JVM then writes the
loaded and verified classes into the archive. A session with the archive starts with half the work.
The archive lies in the virtual environment, because the archive fits only the environment's Spark.
`make pytest` calls this program.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
from tests.support.applications.streams import Stream
from tests.support.sessions.hadoop_defaults import write_few_defaults
from tests.support.sessions.java_options import ARCHIVE, WRITES_ARCHIVE, set_java_options
from tests.support.sessions.spark_session import start_spark, stop_spark
from tests.support.tables.table_jobs import Changes, Upserts


def run_operator(spark: SparkSession, folder: Path) -> None:
    stream = Stream(spark, folder)
    stream.feed([("a", 1), ("b", 2)])
    stream.run()


def run_table(spark: SparkSession, folder: Path) -> None:
    upserts = Upserts(spark, folder)
    upserts.feed((1, "a", 1))
    upserts.run()
    upserts.rows()
    Changes(spark, upserts.table, folder / "changes").run(startingVersion="earliest")


def run_provider(spark: SparkSession, folder: Path) -> None:
    spark.conf.set(PROVIDER_KEY, PROVIDER_CLASS)
    stream = Stream(spark, folder, settings={})
    stream.feed([("a", 1), ("b", 2)])
    stream.run(stream.source().groupBy("key").agg(F.count("*").alias("rows")))
    spark.read.format("statestore").load(str(stream.checkpoint)).collect()


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    write_few_defaults()
    set_java_options(WRITES_ARCHIVE)
    with tempfile.TemporaryDirectory(prefix="cst-") as name:
        spark = start_spark("local[2]", Path(name))
        for run in (run_operator, run_table, run_provider):
            run(spark, Path(name, run.__name__))
        stop_spark(spark)
    if not ARCHIVE.exists():
        print(f"this Java wrote no {ARCHIVE}: tests run without, and start slower")


if __name__ == "__main__":
    main()
