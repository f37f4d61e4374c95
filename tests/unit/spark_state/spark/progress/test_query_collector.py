"""QueryCollector counts each batch once, whatever Spark tells of a query in between."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from spark_state.spark.progress.query_collector import QueryCollector


@dataclass
class Told:
    """A progress in the JVM."""

    batch: int
    rows: int = 10
    steps: tuple[str, ...] = ("addBatch", "triggerExecution")
    timestamp: str = "2026-01-01T00:00:00.000Z"
    operators: list[dict[str, Any]] = field(default_factory=list)
    end_offset: Any = None

    def batchId(self) -> int:  # noqa: N802
        return self.batch

    def durationMs(self) -> Told:  # noqa: N802
        return self

    def containsKey(self, step: str) -> bool:
        return step in self.steps

    def json(self) -> str:
        source = {"numInputRows": self.rows, "endOffset": self.end_offset}
        return json.dumps(
            {
                "batchId": self.batch,
                "timestamp": self.timestamp,
                "durationMs": dict.fromkeys(self.steps, 100),
                "sources": [source],
                "stateOperators": self.operators,
            }
        )


@dataclass
class Query:
    """A running query, which is its own handle in the JVM."""

    told: list[Told] = field(default_factory=list)
    runId: str = "run"  # noqa: N815
    id: str = "id"
    name: str | None = "orders"
    is_failing: bool = False

    @property
    def _jsq(self) -> Query:
        if self.is_failing:
            raise OSError("no answer")
        return self

    def recentProgress(self) -> list[Told]:  # noqa: N802
        return self.told


def scraped(collector: QueryCollector) -> dict[str, float]:
    """The values of the samples, by name and further labels."""
    return {
        " ".join([sample.name, *list(sample.labels.values())[2:]]): sample.value
        for metric in collector.collect()
        for sample in metric.samples
    }


def test_a_query_without_a_batch_has_counted_none() -> None:
    assert scraped(QueryCollector(lambda: [Query()])) == {"cowstate_query_batches_total": 0}


def test_a_batch_counts_once_and_waiting_counts_nothing() -> None:
    query = Query([Told(0), Told(1, rows=0, steps=("triggerExecution",))])
    collector = QueryCollector(lambda: [query])
    counted = []
    for told in ([], [Told(1)], [], [Told(2, rows=0, steps=()), Told(2, rows=5)]):
        query.told += told
        samples = scraped(collector)
        names = ("cowstate_query_batches_total", "cowstate_query_input_rows_total")
        counted.append(tuple(samples[name] for name in names))
    assert counted == [(1, 10), (2, 20), (2, 20), (3, 25)]
    assert samples["cowstate_query_step_seconds_total addBatch"] == pytest.approx(0.3)


def test_batches_count_though_the_clock_was_set_back() -> None:
    query = Query([Told(0, timestamp="2026-06-01T00:00:00.000Z")])
    collector = QueryCollector(lambda: [query])
    scraped(collector)
    query.told.append(Told(1, timestamp="2025-01-01T00:00:00.000Z"))
    assert scraped(collector)["cowstate_query_batches_total"] == 2


@pytest.mark.parametrize("offset", [{"tick": 3, "query": None}, {"batches": 1}])
def test_rows_of_sources_that_cowstate_added_are_no_input(offset: dict[str, Any]) -> None:
    query = Query([Told(0, end_offset=offset), Told(1, end_offset={"0": 7})])
    samples = scraped(QueryCollector(lambda: [query]))
    assert samples["cowstate_query_input_rows_total"] == 10


@pytest.mark.parametrize(
    "offset", ['{"0": 7}', None, 3, {"batches": {"0": 7}}, {"tick": {"0": 1}, "query": {"0": 2}}]
)
def test_rows_of_any_other_source_are_input(offset: Any) -> None:
    samples = scraped(QueryCollector(lambda: [Query([Told(0, end_offset=offset)])]))
    assert samples["cowstate_query_input_rows_total"] == 10


def test_metrics_of_a_provider_are_shown_and_summed() -> None:
    document = {
        "operatorName": "dedupe",
        **dict.fromkeys(
            (
                *("numRowsTotal", "numRowsUpdated", "numRowsRemoved", "numRowsDroppedByWatermark"),
                *("memoryUsedBytes", "numStateStoreInstances"),
                *("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs"),
            ),
            4,
        ),
    }
    metrics = {"bytes": 7, "SnapshotLastUploaded.partition_0_default": 3}
    # The JSON of an operator without metrics of its provider has no such field.
    query = Query([Told(0, operators=[document]), Told(1, operators=[document])])
    collector = QueryCollector(lambda: [query])
    assert scraped(collector)["cowstate_state_rows 0-dedupe"] == 4
    query.told += [Told(n, operators=[{**document, "customMetrics": metrics}]) for n in (2, 3)]
    samples = scraped(collector)
    assert {name: value for name, value in samples.items() if "metric" in name} == {
        "cowstate_state_metric 0-dedupe bytes": 7,
        "cowstate_state_metric_sum_total 0-dedupe bytes": 14,
    }
    assert samples["cowstate_state_updated_rows_total 0-dedupe"] == 16


def test_a_query_that_does_not_answer_takes_no_other_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = Query([Told(0)], runId="other", id="other")
    query = Query([Told(0), Told(1)])
    collector = QueryCollector(lambda: [query, other])
    with caplog.at_level(logging.WARNING):
        scraped(collector)
        query.is_failing = True
        for _ in range(2):
            assert scraped(collector)["cowstate_query_batches_total"] == 1
    assert caplog.messages == ["metrics lack batches of 1 running queries: no answer"]
    query.is_failing, query.told = False, [Told(2)]
    counted = [
        sample.value
        for metric in collector.collect()
        for sample in metric.samples
        if sample.name == "cowstate_query_batches_total"
    ]
    assert counted == [3, 1]
