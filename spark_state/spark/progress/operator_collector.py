"""The operators of running queries as Prometheus metrics.

Gauges show the newest epoch of a finished batch. Counters are sums over the epochs of the query's
run. Each scrape adds the run's new epochs; an epoch that retention deletes before a scrape is not
counted. A restart of the query is a new run, so its counters begin again at 0, like the counters of
any restarted process. When a query ends, its series end.

A scrape reads stores only for queries that have finished a batch since the scrape before. For such
a query, the scrape lists each operator's epochs and reads each new epoch once. Stores are read in
parallel, so a store that does not answer delays a scrape by only a few seconds of retries.

An error of any kind in one operator or query does not remove the series of the other operators and
queries. The log has a warning when an error begins.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pyspark.sql.streaming.query import StreamingQuery

from checkpoint_store.errors import NotAStoreError, VersionNotRetainedError
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.operators.operator_progress import EpochNumbers, OperatorProgress
from spark_state.spark.progress.followed_queries import FollowedQueries
from spark_state.spark.queries.query_runs import run_of
from spark_state.spark.stored.stored_operators import StoredOperator

_LABELS = ("query_id", "query_name", "operator")
_PREFIX = "cowstate_operator"

# By the name of a metric: the field of an epoch's numbers, and the description.
_GAUGES = {
    "rows": ("rows_total", "Entries in the state."),
    "memory_bytes": (
        "memory_bytes",
        "About how much memory the entries of the state take, an estimate.",
    ),
    "timers": ("timers", "Timers that are registered."),
    "next_timer_timestamp_seconds": ("next_timer_ms", "The earliest timer."),
    "watermark_timestamp_seconds": ("watermark_ms", "The watermark that the newest epoch used."),
    "failed_snapshots": (
        "failed_snapshots",
        "Snapshots in a row that could not be written or took too long; they are tried again.",
    ),
}
_COUNTERS = {
    "input_rows": ("rows_in", "Rows that processors got."),
    "output_rows": ("rows_out", "Rows that processors gave."),
    "updated_rows": ("rows_updated", "Entries that were put into the state."),
    "removed_rows": ("rows_removed", "Entries that were deleted from the state."),
    "late_rows": ("late_rows", "Rows that were dropped because the watermark had passed them."),
    "written_bytes": ("written_bytes", "Bytes of state files."),
}
_STEP_TIMES = {
    "restore": "restore_ms",
    "process": "process_ms",
    "write": "write_ms",
    "publish": "last_publish_ms",
}
_SUMMED = {name: number for name, (number, _) in _COUNTERS.items()} | _STEP_TIMES

_log = logging.getLogger(__name__)


@dataclass
class _FollowedOperator:
    """An operator in one run of a query. `last`: the batch and the timestamp of the query's last
    progress; `seen`: the value of `last` when the store was last read; `newest`: the newest epoch
    that was read; `epochs`: the number of counted epochs; `sums`: the sum of each counter, by the
    counter's name and the subtask; `is_failing`: True if the store could not be read the last
    time."""

    run_id: str
    labels: tuple[str, ...]
    operator: StoredOperator
    last: tuple[int, str]
    seen: tuple[int, str] | None = None
    newest: OperatorProgress | None = None
    epochs: int = 0
    sums: Counter[tuple[str, str]] = field(default_factory=Counter)
    is_failing: bool = False


class OperatorCollector(Collector):
    """Collects the metrics of operators. `queries`: returns the running queries; `subtasks`: True
    for a series for each subtask, without a sum."""

    def __init__(self, queries: Callable[[], Sequence[StreamingQuery]], *, subtasks: bool) -> None:
        self._followed = FollowedQueries[tuple[str, str], _FollowedOperator](queries, "operators")
        self._subtasks = subtasks
        self._lock = threading.Lock()

    def describe(self) -> Iterable[Metric]:
        """The metrics, without reading a store."""
        return self._metrics([])

    def collect(self) -> Iterable[Metric]:
        """The metrics, after reading the stores of queries that have finished a batch since the
        scrape before. Two scrapes at the same time run one after the other."""
        with self._lock:
            return [*self._metrics(self._look())]

    def _look(self) -> list[_FollowedOperator]:
        """The operators of the running queries, with their newest epochs counted."""
        shown = self._followed.look(self._operators_of)
        # The store may have a new epoch if the query has a new progress.
        in_parallel(self._read, [each for each in shown if each.seen != each.last])
        return shown

    def _operators_of(
        self, query: StreamingQuery, followed: Mapping[tuple[str, str], _FollowedOperator]
    ) -> dict[tuple[str, str], _FollowedOperator]:
        """The operators of a running query, by run and URL of the store; empty before the query's
        first progress."""
        last = query._jsq.lastProgress()
        if last is None:
            return {}
        run_id, moment = str(query.runId), (int(last.batchId()), str(last.timestamp()))
        shown = {}
        for operator in run_of(query).operators:
            key, labels = (run_id, operator.url), (str(query.id), query.name or "", operator.name)
            before = followed.get(key) or _FollowedOperator(run_id, labels, operator, moment)
            shown[key] = replace(before, operator=operator, last=moment)
        return shown

    def _read(self, followed: _FollowedOperator) -> None:
        try:
            self._count(followed)
        except Exception as error:
            if followed.newest is not None or not isinstance(error, NotAStoreError):
                if not followed.is_failing:
                    kind, url = type(error).__name__, followed.operator.url
                    _log.warning("metrics lack operator %s: %s: %s", url, kind, error)
                followed.is_failing = True
                return
            # The operator has not run yet.
        followed.seen, followed.is_failing = followed.last, False

    def _count(self, followed: _FollowedOperator) -> None:
        """Add the new epochs, up to the epoch of the last batch, to the counters."""
        operator = followed.operator
        counted = -1 if followed.newest is None else followed.newest.epoch
        epochs = operator.epochs()
        if followed.newest is not None and not epochs:
            raise NotAStoreError(operator.url)
        new = [epoch for epoch in epochs if counted < epoch <= followed.last[0]]
        for progress in in_parallel(lambda epoch: self._progress(operator, epoch), new):
            if progress is None:
                continue
            followed.newest = progress
            if progress.run_id == followed.run_id:
                followed.epochs += 1
                for subtask, numbers in self._parts(progress):
                    followed.sums.update(_amounts(subtask, numbers))

    def _progress(self, operator: StoredOperator, epoch: int) -> OperatorProgress | None:
        """The progress of an epoch; None if retention has deleted the epoch since the listing."""
        try:
            return operator.progress(epoch, subtasks=self._subtasks)
        except VersionNotRetainedError:
            return None

    def _parts(self, progress: OperatorProgress) -> Iterator[tuple[str, EpochNumbers]]:
        """The parts of a progress that have their own series, each with its subtask label."""
        if not self._subtasks:
            yield "", progress
        for part in progress.subtasks:
            yield str(part.subtask), part

    def _metrics(self, operators: Sequence[_FollowedOperator]) -> Iterator[Metric]:
        shown = [
            (followed, followed.newest)
            for followed in operators
            if followed.newest is not None and not followed.is_failing
        ]
        labels = (*_LABELS, "subtask") if self._subtasks else _LABELS
        up = _gauge("up", "Whether the operator's store could be read.", _LABELS)
        for followed in operators:
            up.add_metric(followed.labels, 0 if followed.is_failing else 1)
        epoch = _gauge("epoch", "The newest epoch.", _LABELS)
        subtasks = _gauge("subtasks", "Subtasks.", _LABELS)
        epochs = _counter("epochs", "Epochs.", _LABELS)
        for followed, newest in shown:
            epoch.add_metric(followed.labels, newest.epoch)
            subtasks.add_metric(followed.labels, newest.parallelism)
            epochs.add_metric(followed.labels, followed.epochs)
        yield from (up, epoch, subtasks, epochs)
        for name, (field_name, text) in _GAUGES.items():
            gauge = _gauge(name, text, labels)
            for followed, newest in shown:
                for subtask, numbers in self._parts(newest):
                    number = _number(numbers, field_name)
                    if number is not None:
                        gauge.add_metric(self._values(followed, subtask), number)
            yield gauge
        for name, (_, text) in _COUNTERS.items():
            yield self._totals(_counter(name, text, labels), shown, {name: ()})
        text = "Time of the steps of epochs, of all subtasks together."
        steps = {step: (step,) for step in _STEP_TIMES}
        yield self._totals(_counter("step_seconds", text, [*labels, "step"]), shown, steps)

    def _totals(
        self,
        counter: CounterMetricFamily,
        shown: Sequence[tuple[_FollowedOperator, OperatorProgress]],
        further_values: Mapping[str, Sequence[str]],
    ) -> CounterMetricFamily:
        """Add sums of the operators in `shown` to `counter`, and return `counter`.
        `further_values`: by the name of each sum to add, the values of the counter's additional
        labels, such as the label `step`."""
        for followed, _ in shown:
            for (name, subtask), total in sorted(followed.sums.items()):
                if name in further_values:
                    values = [*self._values(followed, subtask), *further_values[name]]
                    counter.add_metric(values, total)
        return counter

    def _values(self, followed: _FollowedOperator, subtask: str) -> Sequence[str]:
        return (*followed.labels, subtask) if self._subtasks else followed.labels


def _gauge(name: str, text: str, labels: Sequence[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=labels)


def _counter(name: str, text: str, labels: Sequence[str]) -> CounterMetricFamily:
    return CounterMetricFamily(f"{_PREFIX}_{name}", text, labels=labels)


def _amounts(subtask: str, numbers: EpochNumbers) -> dict[tuple[str, str], float]:
    """The amounts that an epoch adds to the counters."""
    return {
        (name, subtask): number
        for name, field_name in _SUMMED.items()
        if (number := _number(numbers, field_name)) is not None
    }


def _number(numbers: EpochNumbers, field_name: str) -> float | None:
    """The value of a field of `numbers`, None if the field is None. A field in milliseconds is
    converted to seconds."""
    number: int | None = getattr(numbers, field_name)
    return number / 1000 if number is not None and field_name.endswith("_ms") else number
