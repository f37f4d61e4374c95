"""The batches and the stateful operators of running queries as Prometheus metrics.

All numbers come from Spark's progress of the queries. So the metrics show queries on the provider,
on Spark's own providers, and without state. Gauges show the newest batch. Counters are sums over
the batches of the query's run: each scrape adds the batches since the scrape before. If there were
more batches than Spark remembers (`spark.sql.streaming.numRecentProgressUpdates`, 100 by default),
the oldest of them are not counted. When a query ends, its series end.

In a session of classic Spark, operators of cowstate are no part of these metrics, because
OperatorCollector reads their stores. In a session of Spark Connect that is enabled, the client adds
the operators to the progress, so these metrics have them, too.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from spark_state.spark.input.clock import ClockOffset
from spark_state.spark.input.first_batch_source import BATCHES
from spark_state.spark.progress.followed_queries import FollowedQueries
from spark_state.spark.session.connect_sessions import is_connect_query

Progress = Mapping[str, Any]
"""The JSON of a progress, see StreamingQueryProgress of Spark."""

_QUERY = ("query_id", "query_name")
_OPERATOR = (*_QUERY, "operator")

# By the name of a metric: the field of a stateful operator in the progress, and the description.
_GAUGES = {
    "rows": ("numRowsTotal", "Rows in the state."),
    "memory_bytes": ("memoryUsedBytes", "Memory of the state."),
    "stores": ("numStateStoreInstances", "State stores of the operator."),
}
_COUNTERS = {
    "updated_rows": ("numRowsUpdated", "Rows that were put into the state."),
    "removed_rows": ("numRowsRemoved", "Rows that were removed from the state."),
    "late_rows": (
        "numRowsDroppedByWatermark",
        "Rows that were dropped because the watermark had passed them.",
    ),
}
_STEP_TIMES = {
    "update": "allUpdatesTimeMs",
    "removal": "allRemovalsTimeMs",
    "commit": "commitTimeMs",
}
# These custom metrics are not numbers of the operator: a metric for each partition and store.
_OF_PARTITIONS = "SnapshotLastUploaded"
_BATCH_STEP = "addBatch"
_CLOCK_FIELDS = {each.name for each in fields(ClockOffset)}


@dataclass
class _FollowedQuery:
    """A run of a query. `labels`: id and name of the query; `newest`: the progress of the newest
    counted batch; `batches`: the number of counted batches; `sums`: sums over these batches, by
    metric, and by operator, step or metric of the provider."""

    labels: tuple[str, str]
    newest: Progress | None = None
    batches: int = 0
    sums: defaultdict[tuple[str, tuple[str, ...]], float] = field(
        default_factory=lambda: defaultdict(float)
    )


class QueryCollector(Collector):
    """Collects the metrics of queries. `queries`: returns the running queries."""

    def __init__(self, queries: Callable[[], Sequence[Any]]) -> None:
        self._followed = FollowedQueries[str, _FollowedQuery](queries, "batches")
        self._lock = threading.Lock()

    def describe(self) -> Iterable[Metric]:
        """The metrics, without looking at a query."""
        return self._metrics([])

    def collect(self) -> Iterable[Metric]:
        """The metrics, with the batches since the scrape before."""
        with self._lock:
            return [*self._metrics(self._followed.look(_counted))]

    def _metrics(self, queries: Sequence[_FollowedQuery]) -> Iterator[Metric]:
        batch = GaugeMetricFamily("cowstate_query_batch", "The newest batch.", labels=_QUERY)
        watermark = GaugeMetricFamily(
            "cowstate_query_watermark_timestamp_seconds",
            "The watermark of the newest batch.",
            labels=_QUERY,
        )
        batches = CounterMetricFamily("cowstate_query_batches", "Batches.", labels=_QUERY)
        for query in queries:
            batches.add_metric(query.labels, query.batches)
            if query.newest is None:
                continue
            batch.add_metric(query.labels, query.newest["batchId"])
            at = query.newest.get("eventTime", {}).get("watermark")
            if at is not None:
                watermark.add_metric(query.labels, datetime.fromisoformat(at).timestamp())
        yield from (batch, watermark, batches)
        text = "Rows that the query read."
        yield _totals("query_input_rows", text, _QUERY, queries)
        text = "Time of the steps of batches; `triggerExecution` is the whole batch."
        yield _totals("query_step_seconds", text, (*_QUERY, "step"), queries)
        for name, (number, text) in _GAUGES.items():
            gauge = GaugeMetricFamily(f"cowstate_state_{name}", text, labels=_OPERATOR)
            for query, operator, document in _operators(queries):
                gauge.add_metric((*query.labels, operator), document[number])
            yield gauge
        text = "A metric of the state store provider, in the newest batch."
        custom = GaugeMetricFamily("cowstate_state_metric", text, labels=(*_OPERATOR, "metric"))
        for query, operator, document in _operators(queries):
            for metric, value in _custom_metrics(document):
                custom.add_metric((*query.labels, operator, metric), value)
        yield custom
        text = "A metric of the state store provider, summed over the batches."
        yield _totals("state_metric_sum", text, (*_OPERATOR, "metric"), queries)
        for name, (_, text) in _COUNTERS.items():
            yield _totals(f"state_{name}", text, _OPERATOR, queries)
        text = "Time of the steps in the stores, of all stores together."
        yield _totals("state_step_seconds", text, (*_OPERATOR, "step"), queries)


def _counted(query: Any, followed: Mapping[str, _FollowedQuery]) -> dict[str, _FollowedQuery]:
    """A query by its run, with its newest batches counted."""
    run_id, labels = str(query.runId), (str(query.id), query.name or "")
    counted = followed.get(run_id) or _FollowedQuery(labels)
    newest = -1 if counted.newest is None else int(counted.newest["batchId"])
    for progress in _batches_after(query, newest):
        _count(counted, progress)
    return {run_id: counted}


def _batches_after(query: Any, newest: int) -> list[Progress]:
    """The progress of each batch after batch `newest`, oldest first. A query that waits for rows
    has a progress from time to time, too, with the number of the next batch and without the step
    `addBatch`."""
    later: list[Progress] = []
    if is_connect_query(query):
        last = query.lastProgress
        if last is not None and last.batchId > newest:
            later = [json.loads(progress.json) for progress in query.recentProgress]
    else:
        for progress in reversed(query._jsq.recentProgress()):
            if progress.batchId() <= newest:
                break
            if progress.durationMs().containsKey(_BATCH_STEP):
                later.insert(0, json.loads(progress.json()))
    return [
        progress
        for progress in later
        if progress["batchId"] > newest and _BATCH_STEP in progress["durationMs"]
    ]


def _count(followed: _FollowedQuery, progress: Progress) -> None:
    """Add the numbers of a batch to the sums."""
    followed.newest = progress
    followed.batches += 1
    sums = followed.sums
    # The JSON of Spark Connect has no sum over the sources.
    rows = [source["numInputRows"] for source in progress["sources"] if not _is_own(source)]
    sums["query_input_rows", ()] += sum(rows)
    for step, milliseconds in progress["durationMs"].items():
        sums["query_step_seconds", (step,)] += milliseconds / 1000
    for operator, document in _operators_in(progress):
        for name, (number, _) in _COUNTERS.items():
            sums[f"state_{name}", (operator,)] += document[number]
        for step, number in _STEP_TIMES.items():
            sums["state_step_seconds", (operator, step)] += document[number] / 1000
        for metric, value in _custom_metrics(document):
            sums["state_metric_sum", (operator, metric)] += value


def _is_own(source: Progress) -> bool:
    """Return True for a source that cowstate added to the plan: its rows are no input of the
    query. The offset of Kafka has a topic's partitions where the offset of such a source has a
    number, so a topic may have any name."""
    offset = source.get("endOffset")
    if not isinstance(offset, dict):
        return False
    is_clock = offset.keys() == _CLOCK_FIELDS and isinstance(offset["tick"], int)
    return is_clock or offset == {BATCHES: 1}


def _custom_metrics(document: Progress) -> Iterator[tuple[str, float]]:
    """The metrics of the provider in the document of a stateful operator. The JSON of an operator
    without such metrics has none."""
    for metric, value in document.get("customMetrics", {}).items():
        if not metric.startswith(_OF_PARTITIONS):
            yield metric, value


def _operators(
    queries: Sequence[_FollowedQuery],
) -> Iterator[tuple[_FollowedQuery, str, Progress]]:
    """Each stateful operator in the newest batch of each query, with its label."""
    for query in queries:
        if query.newest is not None:
            for operator, document in _operators_in(query.newest):
                yield query, operator, document


def _operators_in(progress: Progress) -> Iterator[tuple[str, Progress]]:
    """The stateful operators of a progress. The number in a label is the operator's place."""
    for number, document in enumerate(progress["stateOperators"]):
        yield f"{number}-{document['operatorName']}", document


def _totals(
    name: str, text: str, labels: Sequence[str], queries: Sequence[_FollowedQuery]
) -> CounterMetricFamily:
    counter = CounterMetricFamily(f"cowstate_{name}", text, labels=labels)
    for query in queries:
        for (metric, further_values), total in sorted(query.sums.items()):
            if metric == name:
                counter.add_metric((*query.labels, *further_values), total)
    return counter
