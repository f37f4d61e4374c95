"""Cuts the clicks of a topic into sessions: from Kafka to a processor, to Kafka and to a table.

    python sessions.py [--bootstrap-servers localhost:9092] [--folder kafka-sessions] [--store URL]
                       [--master 'local[2]'] [--metrics-port N] [--metrics-host 127.0.0.1]

    topic clicks -> SessionsOfUser -> topic sessions -> table <store>/table

The checkpoints of the queries are in the folder, and the state and the table in the store, which is
any URL that fsspec knows; without `--store`, in the folder. `--metrics-port` serves metrics for
Prometheus.

A session of a user ends when the user did not click for GAP_MS of event time. The job runs until
Ctrl-C, and the same command goes on where it stopped, also after a kill.

Spark writes to Kafka at least once: after a kill, a batch may be in the topic twice. So a message
has a key (user and start) that is the same in both, and the number of its batch, `epoch`. A reader
that keeps a row for each key has each session once. The table is such a reader: its keys are user
and start. docs/how-to/kafka.md explains it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from broker import connector_jars
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StreamingQuery
from topics import ADDRESS, CLICKS, DELAY_MS, GAP_MS, SESSIONS, check_topics

import spark_state

CLICK = "user string, page string, at_ms bigint"
SESSION = "user string, start_ms bigint, end_ms bigint, clicks bigint, last_page string"

Click = tuple[int, str]
"""Time in milliseconds, and page."""


def cut(clicks: Iterable[Click]) -> list[list[Click]]:
    """Cut the clicks of a user into sessions, in the order of time, as `session_window` of Spark
    does: a click at the end of a session belongs to the session."""
    sessions: list[list[Click]] = []
    for click in sorted(clicks):
        if sessions and click[0] <= sessions[-1][-1][0] + GAP_MS:
            sessions[-1].append(click)
        else:
            sessions.append([click])
    return sessions


class SessionsOfUser(StatefulProcessor):
    """A processor that keeps the clicks of a user until their session has ended."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._open = handle.getListState("open", "at_ms bigint, page string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        clicks = [(row.at_ms, row.page) for row in rows]
        self._open.appendList(clicks)
        # Each click is followed by a timer at its session's end, or later if clicks came after it.
        self._handle.registerTimer(max(clicks)[0] + GAP_MS)
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        watermark_ms = timerValues.getCurrentWatermarkInMs()
        still_open: list[Click] = []
        for session in cut(tuple(click) for click in self._open.get()):
            start_ms, (end_ms, last_page) = session[0][0], session[-1]
            if end_ms + GAP_MS <= watermark_ms:
                yield Row(
                    user=key[0],
                    start_ms=start_ms,
                    end_ms=end_ms,
                    clicks=len(session),
                    last_page=last_page,
                )
            else:
                still_open += session
        if still_open:
            self._open.put(still_open)
        else:
            self._open.clear()

    def close(self) -> None:
        pass


def start_session(store: str, master: str) -> SparkSession:
    """Start Spark with cowstate and with Spark's connector to Kafka."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master(master)
        .appName("kafka-sessions")
        .config("spark.jars", ",".join(map(str, connector_jars())))
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.cowstate.store", f"{store}/state")
        .config("spark.log.level", "ERROR")
    )
    spark = spark_state.configure(builder).getOrCreate()
    spark_state.enable(spark)
    return spark


def read_topic(spark: SparkSession, address: str, topic: str, schema: str) -> DataFrame:
    """The messages of a topic, as a stream of rows."""
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    parsed = F.from_json(F.col("value").cast("string"), schema)
    return messages.select(parsed.alias("parsed")).select("parsed.*")


def publish_sessions(spark: SparkSession, address: str, folder: Path) -> StreamingQuery:
    """Start the query from the topic of clicks to the topic of sessions."""
    clicks = read_topic(spark, address, CLICKS, CLICK)
    timed = clicks.withColumn("at", F.timestamp_millis("at_ms"))
    sessions = (
        timed.withWatermark("at", f"{DELAY_MS} milliseconds")
        .groupBy("user")
        .transformWithState(SessionsOfUser(), SESSION, outputMode="append", timeMode="EventTime")
    )

    def publish(batch: DataFrame, epoch: int) -> None:
        numbered = batch.withColumn("epoch", F.lit(epoch))
        message = {"key": F.struct("user", "start_ms"), "value": F.struct("*")}
        (
            numbered.select(*(F.to_json(part).alias(name) for name, part in message.items()))
            .write.format("kafka")
            .option("kafka.bootstrap.servers", address)
            .option("topic", SESSIONS)
            .save()
        )

    return (
        sessions.writeStream.outputMode("append")
        .queryName("sessions")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(publish)
        .start()
    )


def write_table(spark: SparkSession, address: str, folder: Path, store: str) -> StreamingQuery:
    """Start the query from the topic of sessions to the table."""
    sessions = read_topic(spark, address, SESSIONS, f"{SESSION}, epoch bigint")
    return (
        sessions.writeStream.outputMode("append")
        .queryName("table")
        .format("cowstate")
        .option("keys", "user,start_ms")
        .option("sequenceBy", "epoch")
        .option("checkpointLocation", str(folder / "checkpoint-of-table"))
        .start(f"{store}/table")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Cuts clicks into sessions until Ctrl-C.")
    parser.add_argument("--bootstrap-servers", default=ADDRESS)
    parser.add_argument("--folder", type=Path, default=Path("kafka-sessions"))
    parser.add_argument("--store", help="URL of a directory (default: the folder)")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--metrics-port", type=int)
    parser.add_argument("--metrics-host", default="127.0.0.1")
    given = parser.parse_args()
    check_topics(given.bootstrap_servers)
    store = (given.store or given.folder.resolve().as_uri()).rstrip("/")
    spark = start_session(store, given.master)
    # PySpark's own handler of Ctrl-C would call the JVM in the middle of another call.
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    metrics = None
    try:
        if given.metrics_port is not None:
            metrics = spark_state.serve_metrics(spark, given.metrics_port, given.metrics_host)
        queries = (
            publish_sessions(spark, given.bootstrap_servers, given.folder),
            write_table(spark, given.bootstrap_servers, given.folder, store),
        )
        print(f"the job runs, the sessions go to {store}/table; Ctrl-C stops it", flush=True)
        while not ended.wait(1.0):
            for query in queries:
                query.awaitTermination(0.1)  # raises the error of a query that has failed
    finally:
        if metrics is not None:
            metrics.close()
        for query in spark.streams.active:
            query.stop()
        spark.stop()
    print("stopped; the same command goes on from here")


if __name__ == "__main__":
    main()
