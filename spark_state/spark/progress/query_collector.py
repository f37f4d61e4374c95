"""The batches and the stateful operators of running queries as Prometheus metrics.

All numbers come from Spark's progress of the queries. So the metrics show queries on the provider,
on Spark's own providers, and without state. Gauges show the newest batch. Counters are sums over
the batches of the query's run that Spark still remembers when a scrape looks
(`spark.sql.streaming.numRecentProgressUpdates`, 100 by default). When a query ends, its series end.

In a session of classic Spark, operators of cowstate are no part of these metrics, because
OperatorCollector reads their stores. In a session of Spark Connect that is enabled, the client adds
the operators to the progress, so these metrics have them, too.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

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

_log = logging.getLogger(__name__)


@dataclass
class _FollowedQuery:
    """A run of a query. `labels`: id and name of the query; `seen`: the time of the newest counted
    progress, as text; `newest`: the progress of the newest batch; `batches`: the number of counted
    batches; `sums`: sums over these batches, by metric, and by operator or step."""

    labels: tuple[str, str]
    seen: str = ""
    newest: Progress | None = None
    batches: int = 0
    sums: Counter[tuple[str, tuple[str, ...]]] = field(default_factory=Counter)


class QueryCollector(Collector):
    """Collects the metrics of queries. `queries`: returns the running queries."""

    def __init__(self, queries: Callable[[], Sequence[Any]]) -> None:
        self._queries = queries
        self._followed: dict[str, _FollowedQuery] = {}
        self._is_failing = False
        self._lock = threading.Lock()

    def describe(self) -> Iterable[Metric]:
        """The metrics, without looking at a query."""
        return self._metrics([])

    def collect(self) -> Iterable[Metric]:
        """The metrics, with the batches since the scrape before."""
        with self._lock:
            return [*self._metrics(self._look())]

    def _look(self) -> list[_FollowedQuery]:
        """The running queries, with their newest batches counted."""
        shown, errors = dict[str, _FollowedQuery](), []
        for query in self._queries():
            try:
                run_id, labels = str(query.runId), (str(query.id), query.name or "")
                followed = self._followed.get(run_id) or _FollowedQuery(labels)
                for progress in _progress_after(query, followed.seen):
                    _count(followed, progress)
                shown[run_id] = followed
            except Exception as error:
                errors.append(error)
        if errors and not self._is_failing:
            _log.warning("metrics lack %d of the running queries: %s", len(errors), errors[0])
        self._is_failing = bool(errors)
        # If Spark did not answer for a query, keep its sums for the next scrape.
        self._followed = {**self._followed, **shown} if errors else shown
        return [each for each in shown.values() if each.newest is not None]

    def _metrics(self, queries: Sequence[_FollowedQuery]) -> Iterator[Metric]:
        batch = GaugeMetricFamily("cowstate_query_batch", "The newest batch.", labels=_QUERY)
        watermark = GaugeMetricFamily(
            "cowstate_query_watermark_timestamp_seconds",
            "The watermark of the newest batch.",
            labels=_QUERY,
        )
        batches = CounterMetricFamily("cowstate_query_batches", "Batches.", labels=_QUERY)
        for query in queries:
            assert query.newest is not None
            batch.add_metric(query.labels, query.newest["batchId"])
            batches.add_metric(query.labels, query.batches)
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
            for metric, value in document["customMetrics"].items():
                if not metric.startswith(_OF_PARTITIONS):
                    custom.add_metric((*query.labels, operator, metric), value)
        yield custom
        for name, (_, text) in _COUNTERS.items():
            yield _totals(f"state_{name}", text, _OPERATOR, queries)
        text = "Time of the steps in the stores, of all stores together."
        yield _totals("state_step_seconds", text, (*_OPERATOR, "step"), queries)


def _progress_after(query: Any, seen: str) -> list[Progress]:
    """The progress of a query since the time `seen`, oldest first. Times of a query rise, and have
    one format, so their texts can be compared."""
    new: list[Progress] = []
    if is_connect_query(query):
        last = query.lastProgress
        if last is not None and last.timestamp > seen:
            new = [json.loads(progress.json) for progress in query.recentProgress]
        return [progress for progress in new if progress["timestamp"] > seen]
    last = query._jsq.lastProgress()
    if last is None or last.timestamp() <= seen:
        return []
    for progress in reversed(query._jsq.recentProgress()):
        if progress.timestamp() <= seen:
            break
        new.append(json.loads(progress.json()))
    return new[::-1]


def _count(followed: _FollowedQuery, progress: Progress) -> None:
    """Add the numbers of a batch to the sums. A query without new rows has a progress, too, from
    time to time, without a batch."""
    followed.seen = progress["timestamp"]
    if "addBatch" not in progress["durationMs"]:
        return
    followed.newest = progress
    followed.batches += 1
    # The JSON of Spark Connect has no sum over the sources.
    rows = sum(source["numInputRows"] for source in progress["sources"])
    followed.sums["query_input_rows", ()] += rows
    for step, milliseconds in progress["durationMs"].items():
        followed.sums["query_step_seconds", (step,)] += milliseconds / 1000
    for operator, document in _operators_in(progress):
        for name, (number, _) in _COUNTERS.items():
            followed.sums[f"state_{name}", (operator,)] += document[number]
        for step, number in _STEP_TIMES.items():
            followed.sums["state_step_seconds", (operator, step)] += document[number] / 1000


def _operators(
    queries: Sequence[_FollowedQuery],
) -> Iterator[tuple[_FollowedQuery, str, Progress]]:
    """Each stateful operator in the newest batch of each query, with its label."""
    for query in queries:
        assert query.newest is not None
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
