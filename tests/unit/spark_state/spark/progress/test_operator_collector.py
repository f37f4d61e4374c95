"""A failing store or query marks only its own operators, and other operators keep their metrics."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from checkpoint_store.errors import VersionNotRetainedError
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.operators.operator_progress import OperatorProgress
from spark_state.spark.progress.operator_collector import OperatorCollector
from spark_state.spark.queries import query_runs
from spark_state.spark.queries.query_runs import QueryRun
from spark_state.spark.stored.stored_operators import StoredOperator
from tests.support.operators.counts_operator import CountsOperator


class Query:
    """The parts of a StreamingQuery, and of its handle in the JVM, that the collector reads."""

    name = "totals"

    def __init__(self, number: int, *urls: str) -> None:
        self.id, self.runId = f"query-{number}", f"run-{number}"
        self.batch = 0
        self.is_gone = False
        self.open_again(*urls)

    def open_again(self, *urls: str) -> None:
        """Forget the run's stores, as if this process met the run for the first time."""
        operators = [StoredOperator(Path(url).name, url, 0) for url in urls]
        query_runs._runs.put(self.runId, QueryRun(operators, Mock()))

    @property
    def _jsq(self) -> Any:
        if self.is_gone:
            raise ConnectionError("the JVM does not answer")
        last = SimpleNamespace(batchId=lambda: self.batch, timestamp=lambda: f"at {self.batch}")
        return SimpleNamespace(lastProgress=lambda: last)


class Scrapes:
    """The scrapes of a collector of some queries."""

    def __init__(self, *queries: Query) -> None:
        self._collector = OperatorCollector(lambda: list(queries), subtasks=False)  # type: ignore[arg-type]

    def values(self, name: str) -> dict[str, float]:
        """Scrape once. Return the values of a metric by operator."""
        return {
            sample.labels["operator"]: sample.value
            for metric in self._collector.collect()
            for sample in metric.samples
            if sample.name == f"cowstate_operator_{name}"
        }


def store(folder: Path, epochs: int = 1) -> CountsOperator:
    """Make an operator's store with the first epochs of `run-1`."""
    operator = CountsOperator(LocalObjectStore(folder), "run-1")
    for epoch in range(epochs):
        operator.run_epoch(epoch, {epoch: 1})
    return operator


def test_an_operator_that_has_not_run_yet_does_not_fail(tmp_path: Path) -> None:
    scrapes = Scrapes(Query(1, str(tmp_path / "counts")))
    assert scrapes.values("up") == {"counts": 1}
    assert scrapes.values("epoch") == {}


def test_a_store_that_is_gone_after_epochs_were_seen_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store(tmp_path / "counts")
    query = Query(1, str(tmp_path / "counts"))
    scrapes = Scrapes(query)
    assert scrapes.values("epoch") == {"counts": 0}
    shutil.rmtree(tmp_path / "counts")
    query.batch = 1
    with caplog.at_level(logging.WARNING):
        assert [scrapes.values("up") for _ in range(2)] == [{"counts": 0}] * 2
        assert scrapes.values("epoch") == {}
    assert len(caplog.records) == 1
    assert f"metrics lack operator {tmp_path}/counts: NotAStoreError: " in caplog.text


def test_a_store_that_is_gone_when_it_is_opened_again_fails(tmp_path: Path) -> None:
    url = str(tmp_path / "counts")
    store(tmp_path / "counts")
    query = Query(1, url)
    scrapes = Scrapes(query)
    assert scrapes.values("up") == {"counts": 1}
    shutil.rmtree(url)
    query.open_again(url)
    query.batch = 1
    assert scrapes.values("up") == {"counts": 0}


def test_an_error_of_no_store_marks_its_operator_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(tmp_path / "counts")
    store(tmp_path / "broken")
    epochs = StoredOperator.epochs

    def broken(operator: StoredOperator) -> list[int]:
        if operator.name == "broken":
            raise ZeroDivisionError
        return epochs(operator)

    monkeypatch.setattr(StoredOperator, "epochs", broken)
    scrapes = Scrapes(Query(1, str(tmp_path / "broken"), str(tmp_path / "counts")))
    assert scrapes.values("up") == {"broken": 0, "counts": 1}
    assert scrapes.values("epoch") == {"counts": 0}
    monkeypatch.undo()
    assert scrapes.values("up") == {"broken": 1, "counts": 1}


def test_a_query_whose_handle_fails_is_left_out_and_goes_on_with_its_sums(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counts = store(tmp_path / "counts", epochs=3)
    store(tmp_path / "rules")
    failing, other = Query(1, str(tmp_path / "counts")), Query(2, str(tmp_path / "rules"))
    scrapes = Scrapes(failing, other)
    failing.batch = 2
    assert scrapes.values("epochs_total")["counts"] == 3
    failing.is_gone = True
    with caplog.at_level(logging.WARNING):
        assert [scrapes.values("up") for _ in range(2)] == [{"rules": 1}] * 2
    (message,) = caplog.messages
    assert "operators of 1 running queries" in message
    failing.is_gone = False
    for path in (tmp_path / "counts").glob("manifests/*"):
        if "0002" not in path.name:
            path.unlink()
    counts.run_epoch(3, {3: 1})
    failing.batch = 3
    assert scrapes.values("epochs_total")["counts"] == 4


def test_an_epoch_that_is_deleted_while_it_is_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(tmp_path / "counts", epochs=3)
    read = StoredOperator.progress

    def progress(operator: StoredOperator, epoch: int, *, subtasks: bool) -> OperatorProgress:
        if epoch == 0:
            raise VersionNotRetainedError(operator.url, 0, 1, 2)
        return read(operator, epoch, subtasks=subtasks)

    monkeypatch.setattr(StoredOperator, "progress", progress)
    query = Query(1, str(tmp_path / "counts"))
    query.batch = 2
    scrapes = Scrapes(query)
    assert scrapes.values("up") == {"counts": 1}
    assert scrapes.values("epochs_total") == {"counts": 2}
