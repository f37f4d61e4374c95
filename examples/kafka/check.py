"""Compares the table of sessions with a batch computation over the topic of clicks.

    python check.py [--bootstrap-servers localhost:9092] [--store kafka-sessions]

Prints the number of sessions, and ends with exit code 1 if a session is missing, is there without
clicks, or differs. The batch knows nothing of the processor: it uses Spark's `session_window`.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sessions import CLICK, start_session
from topics import ADDRESS, CLICKS, DELAY_MS, GAP_MS, check_topics


def sessions_of_batch(spark: SparkSession, address: str) -> DataFrame:
    """The sessions that have ended before the watermark of all clicks in the topic."""
    messages = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", CLICKS)
        .load()
    )
    parsed = messages.select(F.from_json(F.col("value").cast("string"), CLICK).alias("click"))
    clicks = parsed.select("click.*").withColumn("at", F.timestamp_millis("at_ms")).cache()
    newest_ms = clicks.agg(F.max("at_ms")).head()
    watermark_ms = (newest_ms[0] or 0) - DELAY_MS if newest_ms else 0
    window = F.session_window("at", f"{GAP_MS} milliseconds")
    sessions = clicks.groupBy("user", window).agg(
        F.min("at_ms").alias("start_ms"),
        F.max("at_ms").alias("end_ms"),
        F.count("*").alias("clicks"),
        F.max_by("page", F.struct("at_ms", "page")).alias("last_page"),
    )
    ended = F.col("end_ms") + GAP_MS <= watermark_ms
    return sessions.where(ended).drop("session_window")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares the table with a batch.")
    parser.add_argument("--bootstrap-servers", default=ADDRESS)
    parser.add_argument("--store", default="kafka-sessions")
    given = parser.parse_args()
    check_topics(given.bootstrap_servers)
    spark = start_session(given.store, "local[2]")
    try:
        of_batch = sessions_of_batch(spark, given.bootstrap_servers)
        table = spark.read.format("cowstate").load(f"{given.store}/table")
        of_table = table.select(*of_batch.columns)
        missing, wrong = of_batch.exceptAll(of_table), of_table.exceptAll(of_batch)
        differences = [*missing.collect(), *wrong.collect()]
        number = of_table.count()
    finally:
        spark.stop()
    if differences:
        sys.exit(f"{len(differences)} differences between table and batch, first {differences[0]}")
    print(f"{number:,} sessions, all as in a batch over the clicks")


if __name__ == "__main__":
    main()
