"""Metrics of queries over HTTP parse as Prometheus metrics and agree with the queries' input."""

from __future__ import annotations

import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_state
from spark_state import ConfigurationError, MetricsServer
from spark_state.spark.stored.stored_operators import StoredOperator
from tests.spark.input.test_time_modes import TimedStream, ours
from tests.support.applications.provider_application import totals
from tests.support.applications.streams import Stream, random_rows, totals_of
from tests.support.provider.planned_queries import ON_COWSTATE
from tests.support.provider.provider_jobs import configured

pytestmark = pytest.mark.spark

Labels = tuple[tuple[str, str], ...]
IDENTITY = {"query_id", "query_name", "operator"}


class Scraped:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}

    def values(self, name: str, **labels: str) -> dict[Labels, float]:
        """The values of a metric with these labels, by the remaining labels."""
        named = IDENTITY | set(labels)
        return {
            tuple(sorted(item for item in sample.labels.items() if item[0] not in named)): (
                sample.value
            )
            for family in self.families.values()
            for sample in family.samples
            if sample.name in (f"cowstate_operator_{name}", f"cowstate_{name}")
            and labels.items() <= sample.labels.items()
        }

    def value(self, name: str, **labels: str) -> float:
        """The only value of a metric with these labels."""
        (value,) = self.values(name, **labels).values()
        return value


def scrape(server: MetricsServer) -> Scraped:
    with urllib.request.urlopen(server.url, timeout=60) as response:
        assert response.headers["Content-Type"].startswith("text/plain")
        return Scraped(response.read().decode())


@contextmanager
def running(stream: Stream, name: str, output: DataFrame | None = None) -> Iterator[Any]:
    """The query of a stream, which runs until the `with` block ends. `output`: None for the
    operator of cowstate."""
    output = stream.operator() if output is None else output
    writer = output.writeStream.queryName(name).foreachBatch(stream.keep)
    writer = writer.outputMode("update").option("checkpointLocation", str(stream.checkpoint))
    with configured(stream.spark, {**stream.settings, "spark.cowstate.parallelism": "2"}):
        query = writer.start()
    try:
        yield query
    finally:
        query.stop()


def fed(stream: Stream, query: Any, rows: list[tuple[str, int]]) -> None:
    stream.feed(rows)
    query.processAllAvailable()


def test_a_scrape_says_what_a_batch_computation_says(spark: SparkSession, stream: Stream) -> None:
    with spark_state.serve_metrics(spark) as server, running(stream, "totals") as query:
        assert scrape(server).values("rows") == {}
        batches = [random_rows(seed, count=80, keys=40) for seed in range(3)]
        fed(stream, query, batches[0])
        first = scrape(server)
        for rows in batches[1:]:
            fed(stream, query, rows)
        labels = {"query_id": str(query.id), "query_name": "totals", "operator": "RunningTotals"}
        second = scrape(server)
        assert first.value("rows", **labels) == len(totals_of(batches[0]))
        assert second.value("rows", **labels) == len(totals_of(stream.fed))
        for name in ("output_rows_total", "updated_rows_total"):
            assert second.value(name) == sum(len(totals_of(rows)) for rows in batches)
        assert (first.value("input_rows_total"), second.value("input_rows_total")) == (80, 240)
        assert (second.value("epoch"), second.value("epochs_total")) == (2, 3)
        assert (second.value("subtasks"), second.value("up"), second.value("timers")) == (2, 1, 0)
        written = sum(path.stat().st_size for path in stream.store().glob("epochs/*/*.arrow"))
        assert second.value("written_bytes_total") == written
        assert second.value("memory_bytes") > first.value("memory_bytes") > 0
        steps = {dict(labels)["step"] for labels in second.values("step_seconds_total")}
        assert {"restore", "process", "write"} <= steps
        assert not second.values("late_rows_total")
    with pytest.raises(URLError):
        scrape(server)


def test_counters_only_grow_and_begin_anew_with_a_restart(
    spark: SparkSession, stream: Stream
) -> None:
    counted = []
    with spark_state.serve_metrics(spark) as server:
        with running(stream, "totals") as query:
            for seed in range(3):
                fed(stream, query, random_rows(seed, count=10, keys=5))
                counted.append(scrape(server).value("input_rows_total"))
        assert scrape(server).values("input_rows_total") == {}
        with running(stream, "totals") as query:
            fed(stream, query, random_rows(4, count=7, keys=5))
            after = scrape(server)
            counted.append(after.value("input_rows_total"))
            assert after.value("rows") == len(totals_of(stream.fed))
    assert counted == [10, 20, 30, 7]


def test_a_scrape_without_a_new_batch_reads_no_store(
    spark: SparkSession, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    epochs = StoredOperator.epochs

    def noted(operator: StoredOperator) -> list[int]:
        listed.append(operator.name)
        return epochs(operator)

    with spark_state.serve_metrics(spark) as server, running(stream, "totals") as query:
        fed(stream, query, [("a", 1)])
        # Without new rows Spark reports the query's progress from time to time.
        last = query._jsq.lastProgress()
        monkeypatch.setattr(type(query._jsq), "lastProgress", lambda _: last, raising=False)
        monkeypatch.setattr(StoredOperator, "epochs", noted)
        scrapes = [scrape(server).value("rows") for _ in range(3)]
    assert scrapes == [1, 1, 1]
    assert listed == ["RunningTotals"]


def test_subtasks_have_series_of_their_own(spark: SparkSession, stream: Stream) -> None:
    with (
        spark_state.serve_metrics(spark, subtasks=True) as server,
        running(stream, "totals") as query,
    ):
        fed(stream, query, random_rows(1, count=60, keys=30))
        scraped = scrape(server)
        (told,) = spark_state.progress(query, subtasks=True)
    assert scraped.values("rows") == {
        (("subtask", str(part.subtask)),): part.rows_total for part in told.subtasks
    }
    assert sum(scraped.values("input_rows_total").values()) == 60
    assert scraped.value("epoch") == 0


class TestQueriesOnAProvider:
    def test_a_scrape_says_what_a_batch_computation_says(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        stream = Stream(spark, tmp_path, ON_COWSTATE)
        batches = [random_rows(seed, count=80, keys=40) for seed in range(3)]
        with (
            spark_state.serve_metrics(spark) as server,
            running(stream, "totals", totals(stream)) as query,
        ):
            assert scrape(server).values("query_batch") == {}
            for rows in batches:
                fed(stream, query, rows)
            scraped = scrape(server)
        labels = {"query_id": str(query.id), "query_name": "totals"}
        assert scraped.value("query_batch", **labels) == 2
        assert scraped.value("query_batches_total", **labels) == 3
        assert scraped.value("query_input_rows_total", **labels) == 240
        operator = {**labels, "operator": "0-stateStoreSave"}
        assert scraped.value("state_rows", **operator) == len(totals_of(stream.fed))
        updates = sum(len(totals_of(rows)) for rows in batches)
        assert scraped.value("state_updated_rows_total", **operator) == updates
        assert scraped.value("state_stores", **operator) == 2
        assert scraped.value("state_memory_bytes", **operator) > 0
        assert scraped.value("state_late_rows_total", **operator) == 0
        assert scraped.value("state_metric", metric="cowstateChangelogBytes") > 0
        steps = {dict(labels)["step"] for labels in scraped.values("query_step_seconds_total")}
        assert {"addBatch", "queryPlanning", "triggerExecution", "walCommit"} <= steps
        assert scraped.values("query_watermark_timestamp_seconds") == {}
        assert scraped.values("up") == {}

    def test_a_progress_without_a_batch_is_not_counted(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        # Spark tells of a query that waits for rows with the number of the next batch.
        settings = {
            **ON_COWSTATE,
            "spark.sql.streaming.noDataProgressEventInterval": "0",
            "spark.sql.streaming.numRecentProgressUpdates": "100000",
        }
        stream = Stream(spark, tmp_path, settings)
        with (
            spark_state.serve_metrics(spark) as server,
            running(stream, "totals", totals(stream)) as query,
        ):
            fed(stream, query, [("a", 1)])
            deadline = time.monotonic() + 60
            while "addBatch" in query.lastProgress.durationMs and time.monotonic() < deadline:
                time.sleep(0.05)
            assert "addBatch" not in query.lastProgress.durationMs
            waiting = scrape(server)
            fed(stream, query, [("a", 2), ("b", 3)])
            scraped = scrape(server)
        assert (waiting.value("query_batch"), waiting.value("state_rows")) == (0, 1)
        assert (scraped.value("query_batch"), scraped.value("state_rows")) == (1, 2)
        assert scraped.value("query_batches_total") == 2
        assert scraped.value("query_input_rows_total") == 3
        assert scraped.value("state_updated_rows_total") == 3

    def test_rows_of_the_clock_are_no_input(self, spark: SparkSession, tmp_path: Path) -> None:
        stream = TimedStream(spark, tmp_path, {"spark.cowstate.parallelism": "2"})
        output = ours(stream.timed(), "ProcessingTime")
        with spark_state.serve_metrics(spark) as server, running(stream, "seen", output) as query:
            fed(stream, query, [("a", 1), ("b", 2)])
            fed(stream, query, [("a", 3)])
            assert len(query.lastProgress.sources) == 2
            scraped = scrape(server)
        assert scraped.value("query_input_rows_total") == 3

    def test_a_watermark_and_late_rows_are_there(self, spark: SparkSession, tmp_path: Path) -> None:
        stream = TimedStream(spark, tmp_path, ON_COWSTATE)
        counts = stream.watermarked().groupBy(F.window("at", "1 second")).count()
        with (
            spark_state.serve_metrics(spark) as server,
            running(stream, "counts", counts) as query,
        ):
            for rows in ([("a", 60_000)], [("a", 5)]):
                stream.feed_all([rows])
                query.processAllAvailable()
            scraped = scrape(server)
        assert scraped.value("query_watermark_timestamp_seconds") == 50
        assert scraped.value("state_late_rows_total") == 1


class TestServer:
    def test_a_port_in_use_is_refused(self, spark: SparkSession) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with pytest.raises(ConfigurationError, match=f"{port}: .*choose another port, or 0"):
                spark_state.serve_metrics(spark, port)

    @pytest.mark.parametrize("port", [-1, 70_000, "9095", None])
    def test_what_is_no_port_is_refused(self, spark: SparkSession, port: Any) -> None:
        with pytest.raises(
            ConfigurationError, match=f"cannot serve metrics at .*:{port!r}: .*0 for a free one"
        ):
            spark_state.serve_metrics(spark, port)

    def test_an_address_of_another_machine_is_refused(self, spark: SparkSession) -> None:
        with pytest.raises(ConfigurationError, match="no-such-host"):
            spark_state.serve_metrics(spark, host="no-such-host.invalid")

    def test_what_is_no_session_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="needs the session, got 'x': pass what"):
            spark_state.serve_metrics("x")  # type: ignore[arg-type]

    def test_a_missing_library_is_named_with_the_command_that_installs_it(
        self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "prometheus_client", None)
        with pytest.raises(ConfigurationError, match=r"pip install prometheus-client"):
            spark_state.serve_metrics(spark)

    def test_it_listens_on_this_machine_only_and_leaves_no_thread(
        self, spark: SparkSession
    ) -> None:
        before = {*threading.enumerate()}
        server = spark_state.serve_metrics(spark)
        assert (server.host, server.url) == (
            "127.0.0.1",
            f"http://127.0.0.1:{server.port}/metrics",
        )
        (thread,) = {*threading.enumerate()} - before
        server.close()
        server.close()
        assert not thread.is_alive()

    def test_a_session_may_have_several(self, spark: SparkSession) -> None:
        with spark_state.serve_metrics(spark) as first, spark_state.serve_metrics(spark) as other:
            assert first.port != other.port
            assert scrape(first).families.keys() == scrape(other).families.keys()


def test_names_are_those_that_promtool_accepts(spark: SparkSession) -> None:
    with spark_state.serve_metrics(spark) as server:
        families = scrape(server).families.values()
    assert families
    for family in families:
        assert family.name.startswith(("cowstate_operator_", "cowstate_query_", "cowstate_state_"))
        assert family.documentation.endswith(".")
        assert not family.name.endswith(("_total", "_ms", "_kb", "_minutes"))
        assert family.type in ("gauge", "counter")
