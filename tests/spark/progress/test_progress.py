"""The progress of operators is available from a query, in Spark's progress, and in listeners."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import QueryProgressEvent

import spark_state
from spark_state import ConfigurationError
from spark_state.spark.stored.stored_operators import StoredOperator
from tests.spark.input.test_time_modes import TimedStream
from tests.support.applications.existing_jobs import last_seen
from tests.support.applications.streams import Stream, random_rows, totals_of
from tests.support.processors.processors import TOTALS_SCHEMA, RunningTotals
from tests.support.provider.provider_jobs import configured

pytestmark = pytest.mark.spark

TWO_SUBTASKS = {"spark.cowstate.parallelism": "2"}


@pytest.fixture
def enabled(enabled: SparkSession) -> Iterator[SparkSession]:
    with configured(enabled, TWO_SUBTASKS):
        yield enabled


def plain(df: DataFrame) -> Any:
    """A finished query without an operator of cowstate."""
    query = df.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def totals(df: DataFrame) -> DataFrame:
    """A job with one value for each key."""
    grouped: Any = df.groupBy("key")
    output: DataFrame = grouped.transformWithState(RunningTotals(), TOTALS_SCHEMA, "update", "None")
    return output


class HeardProgress(StreamingQueryListener):
    """A listener that keeps the progress of each batch with rows, as of the event."""

    def __init__(self) -> None:
        self.progress: dict[int, Any] = {}
        self.is_over = threading.Event()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        if event.progress.numInputRows:
            self.progress[event.progress.batchId] = event.progress

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self.is_over.set()


def heard(spark: SparkSession, run: Callable[[], object]) -> dict[int, Any]:
    """The progress that a listener gets of a query from start to end, by batch."""
    listener = HeardProgress()
    spark.streams.addListener(listener)
    try:
        run()
        assert listener.is_over.wait(120)
    finally:
        spark.streams.removeListener(listener)
    return listener.progress


class TestOnRequest:
    def test_it_is_what_a_batch_computation_says(self, spark: SparkSession, stream: Stream) -> None:
        stream.feed(random_rows(1, count=300, keys=90))
        stream.feed(last := random_rows(2, count=40, keys=30))
        with configured(spark, TWO_SUBTASKS):
            query = stream.run()
        (told,) = spark_state.progress(query)
        changed = len(totals_of(last))
        assert (told.name, told.epoch, told.parallelism) == ("RunningTotals", 1, 2)
        assert (told.rows_in, told.rows_out) == (len(last), changed)
        assert (told.rows_total, told.rows_updated) == (len(totals_of(stream.fed)), changed)
        assert (told.rows_removed, told.timers, told.late_rows) == (0, 0, None)
        assert (told.watermark_ms, told.next_timer_ms, told.subtasks) == (None, None, ())
        assert told.run_id == str(query.runId)
        assert told.memory_bytes is not None
        assert told.memory_bytes > 100 * told.rows_total
        written = sum(path.stat().st_size for path in stream.store().glob("epochs/*1-*/*.arrow"))
        assert told.written_bytes == written

    def test_timers_and_the_watermark_are_those_of_the_newest_epoch(
        self, enabled: SparkSession, tmp_path: Path
    ) -> None:
        stream = TimedStream(enabled, tmp_path)
        stream.feed_all([[("a", 100_000), ("b", 101_000)], [("a", 130_000)], [("c", 131_000)]])
        query = stream.run(last_seen(stream.watermarked()), output_mode="append")
        (told,) = spark_state.progress(query)
        # The watermark is 10 s behind; b fired at 120 s when the watermark reached 120 s.
        assert told.watermark_ms == 121_000
        assert (told.timers, told.next_timer_ms) == (2, 150_000)

    def test_before_the_first_batch_there_is_none(self, stream: Stream) -> None:
        query = stream.run()
        assert spark_state.progress(query) == ()
        stream.feed([("a", 1)])
        (told,) = spark_state.progress(stream.run())
        assert told.rows_total == 1

    def test_what_is_no_query_is_refused(self, spark: SparkSession) -> None:
        for wrong in (spark, "a query id", None):
            with pytest.raises(ConfigurationError, match="needs a StreamingQuery, got"):
                spark_state.progress(wrong)  # type: ignore[arg-type]

    def test_a_query_without_an_operator_is_refused(self, stream: Stream) -> None:
        stream.feed([("a", 1)])
        with pytest.raises(ConfigurationError, match="has no operator of cowstate: its plan"):
            spark_state.progress(plain(stream.source()))


class TestInSparksPlace:
    def test_a_listener_hears_each_batch_with_its_own_numbers(
        self, enabled: SparkSession, stream: Stream
    ) -> None:
        fed, rows = [], []
        for number in range(3):
            rows += random_rows(number, count=50, keys=20 * (number + 1))
            fed.append(len(totals_of(rows)))
            stream.feed(random_rows(number, count=50, keys=20 * (number + 1)))
        progress = heard(enabled, lambda: stream.run(totals(stream.source())))
        assert sorted(progress) == [0, 1, 2]
        for batch, keys in enumerate(fed):
            (operator,) = progress[batch].stateOperators
            assert (operator.operatorName, operator.numRowsTotal) == ("operator-0", keys)
            assert operator.memoryUsedBytes > 0
            assert operator.customMetrics["numTimers"] == 0
            as_json = json.loads(progress[batch].json)
            assert as_json["stateOperators"] == [json.loads(operator.json)]
            assert "operator-0" in str(progress[batch])

    def test_the_last_progress_is_the_same_and_is_not_read_again(
        self, enabled: SparkSession, stream: Stream, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(2):
            stream.feed(random_rows(number, count=30, keys=20))
        runs: list[Any] = []
        progress = heard(enabled, lambda: runs.append(stream.run(totals(stream.source()))))

        def refused(_operator: StoredOperator) -> list[int]:
            raise AssertionError("the store is not asked again")

        monkeypatch.setattr(StoredOperator, "epochs", refused)
        last = runs[0].lastProgress
        assert last.stateOperators == progress[1].stateOperators
        assert json.loads(last.json) == json.loads(progress[1].json)
        assert [recent.batchId for recent in runs[0].recentProgress] == [0, 1]
        assert all(recent.stateOperators for recent in runs[0].recentProgress)

    def test_a_session_that_is_not_enabled_hears_what_spark_says(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        spark_state.enable(spark)
        spark_state.disable(spark)
        stream = Stream(spark, tmp_path)
        stream.feed([("a", 1)])
        progress = heard(spark, stream.run)
        assert progress[0].stateOperators == []

    def test_operators_with_names_are_there_in_the_order_of_the_plan(
        self, enabled: SparkSession, stream: Stream
    ) -> None:
        stream.feed([("a", 1), ("b", 2)])
        named = stream.operator(name="named").selectExpr("key", "total AS value")
        query = stream.run(totals(named))
        last = query.lastProgress
        assert last is not None
        names = [operator.operatorName for operator in last.stateOperators]
        assert names == ["operator-1", "named"]
        assert [told.name for told in spark_state.progress(query)] == ["named", "operator-1"]
