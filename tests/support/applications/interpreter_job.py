"""A program as users write it.

    python tests/support/applications/interpreter_job.py FOLDER SESSION STEP …

SESSION   plain: a session of Spark's; unnamed: a session of `configure`, without a master
STEP      operator, table, stream: the steps to run, in this order. An operator of a stream is
          planned as on a cluster, where a task looks at the store
--executor-lacks-cowstate   on a cluster of one executor, whose interpreter has no cowstate
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

import spark_state
from spark_state.spark.session import connect_sessions


class Count(StatefulProcessor):
    """Processor that counts the rows of a key."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        yield Row(word=key[0], n=sum(1 for _ in rows))

    def close(self) -> None:
        pass


def session(kind: str, folder: str, executor_lacks_cowstate: bool) -> SparkSession:
    builder: SparkSession.Builder = SparkSession.builder
    builder = builder.config("spark.ui.enabled", "false").config("spark.cowstate.store", folder)
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    if executor_lacks_cowstate:
        builder = builder.master("local-cluster[1,1,1024]")
        builder = builder.config("spark.executorEnv.WITHOUT_COWSTATE", "1")
        builder = builder.config("spark.task.maxFailures", "1")
    elif kind != "unnamed":
        builder = builder.master("local[1]")
    if kind != "plain":
        builder = spark_state.configure(builder)
    return builder.getOrCreate()


@contextmanager
def told(step: str) -> Iterator[None]:
    """Print an error of a step, with the step's name, and go on with the next step."""
    try:
        yield
    except Exception as error:
        print(f"{step} failed: {error}")


def run(spark: SparkSession, step: str, folder: str) -> None:
    if step == "operator":
        words = spark.createDataFrame([("a",), ("b",), ("a",)], "word string").groupBy("word")
        counts = spark_state.transform_with_state(
            words, Count(), "word string, n long", "update", "None"
        )
        print("counted", sorted(tuple(row) for row in counts.collect()))
    elif step == "stream":
        connect_sessions.is_local_master = lambda _: False
        rows = spark.readStream.format("rate").load().selectExpr("string(value) AS word")
        spark_state.transform_with_state(
            rows.groupBy("word"), Count(), "word string, n long", "update", "None"
        )
        print("planned")
    else:
        table = tempfile.mkdtemp(dir=folder)
        rows = spark.range(3).write.format("cowstate").mode("append")
        rows.option("keys", "id").save(table)
        print("read", spark.read.format("cowstate").load(table).count())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("session", choices=("plain", "unnamed"))
    parser.add_argument("steps", nargs="+", choices=("operator", "table", "stream"))
    parser.add_argument("--executor-lacks-cowstate", action="store_true")
    arguments = parser.parse_args()
    spark = session(arguments.session, arguments.folder, arguments.executor_lacks_cowstate)
    for step in arguments.steps:
        with told(step):
            run(spark, step, arguments.folder)
    spark.stop()


if __name__ == "__main__":
    main()
