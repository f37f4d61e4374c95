"""A whole application that uses every feature of an operator.

    python -m tests.support.applications.ledger_job FOLDER

Payments arrive on one stream and rules on another stream. Accounts begin with an initial state, and
have a timer after each batch and entries that expire. Tests feed FOLDER before, kill the
application at any moment, and compare the state with a batch computation.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

import spark_state
from tests.support.applications.streams import Stream
from tests.support.processors.timed_accounts import KeepsAccount
from tests.support.sessions.spark_session import start_spark, stop_spark

OPERATOR = "ledger"
OUTPUT = "key string, rows bigint, total bigint"
KINDS = 4
TOLD = ("rows", "total", "begun", "registered", "deleted", "fired", "closed", "rules")
TIMER_MS = 300
TTL_MS = 50


class Ledger(KeepsAccount):
    """Processor that sums payments, each times the factor of its kind, and counts all events of an
    account."""

    told_names = TOLD
    open_schema = "value bigint"

    def init(self, handle: Any) -> None:
        super().init(handle)
        self._seen = handle.getMapState("seen", "value bigint", "n bigint", TTL_MS)
        self._rules = handle.getBroadcastState("rules", "kind bigint", "factor bigint, told bigint")

    def handleBroadcastRows(self, name: str, rows: Iterator[Row], state: Any) -> None:
        for row in rows:
            kind = (int(row.key),)
            told = state[name].getValue(kind)
            state[name].updateValue(kind, (row.value, 1 if told is None else told.told + 1))

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        told = self.told()
        told["begun"] += 1
        told["total"] += initialState.total
        self.tell(told)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        told = self.told()
        for row in rows:
            told["rows"] += 1
            told["total"] += row.value * self._rules.getValue((row.value % KINDS,)).factor
            self._open.appendValue((row.value,))
            self._seen.updateValue((row.value,), (1,))
        told["rules"] = sum(rule.told for rule in self._rules.values())
        self.set_timer(timerValues.getCurrentProcessingTimeInMs() + TIMER_MS, told)
        self.tell(told)
        yield Row(key=key[0], rows=told["rows"], total=told["total"])

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        self.close_all()
        return iter([])


def ledger(spark: SparkSession, folder: Path) -> tuple[Stream, DataFrame]:
    """The stream of payments, and the operator on the stream."""
    payments = Stream(spark, folder, settings={})
    rules = Stream(spark, folder / "rules", settings={})
    initial = spark.read.schema("key string, total bigint").parquet(str(folder / "initial.parquet"))
    output = spark_state.transform_with_state(
        payments.source().groupBy("key"),
        Ledger(),
        OUTPUT,
        "update",
        "ProcessingTime",
        initial.groupBy("key"),
        name=OPERATOR,
        broadcast={"rules": rules.source()},
    )
    return payments, output


def main() -> None:
    folder = Path(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = start_spark("local[2]", folder)
    spark.conf.set("spark.cowstate.parallelism", sys.argv[2])
    spark.conf.set("spark.cowstate.backend", sys.argv[3])
    spark.conf.set("spark.cowstate.minEpochsForSnapshot", sys.argv[4])
    stream, output = ledger(spark, folder)
    try:
        stream.run(output)
    finally:
        stop_spark(spark)


if __name__ == "__main__":
    main()
