"""Operators of a Spark Connect query show their progress, because a task reads their stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpoint_store.errors import NotAStoreError
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.progress_reader import read_progress
from spark_state.errors import ConfigurationError
from spark_state.spark.progress import operators_of_queries
from spark_state.spark.progress.operators_of_queries import (
    progress_of,
    progress_of_connect,
    told_in_task,
)
from spark_state.spark.queries import connect_runs
from spark_state.spark.queries.connect_runs import (
    StoredQuery,
    connect_run,
    documents_in_task,
    note_connect_run,
)
from spark_state.spark.session.connect_sessions import answer_of, value_of
from tests.support.operators.counts_operator import CountsOperator


class Settings(dict[str, str]):
    """The settings of a session with Spark's property `getAll`."""

    @property
    def getAll(self) -> dict[str, str]:  # noqa: N802
        return dict(self)


class Session:
    """A session with settings only."""

    def __init__(self, store: Path) -> None:
        self.conf = Settings({"spark.cowstate.store": str(store)})


class LostSession:
    """The session of a server that no longer answers."""

    @property
    def conf(self) -> dict[str, str]:
        raise ConnectionError("the server does not answer")


class Query:
    """A client's view of a query."""

    def __init__(self, session: Session | LostSession, name: str) -> None:
        self._session, self.id, self.runId = session, name, f"run of {name}"


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Run calls in this process instead of in tasks. Return the list of the calls' arguments."""
    calls: list[Any] = []

    def called(_session: object, function: Any, *arguments: Any) -> Any:
        calls.append(arguments)
        return value_of(answer_of(function, arguments))

    for module in (connect_runs, operators_of_queries):
        monkeypatch.setattr(module, "called_in_task", called)
    return calls


def feed(root: Path, name: str, epochs: Sequence[int]) -> None:
    operator = CountsOperator(LocalObjectStore(root / "query" / name), "run-1")
    for epoch in epochs:
        operator.run_epoch(epoch, {epoch: 1})


def names(shown: list[list[dict[str, Any]]]) -> list[list[str]]:
    return [[document["operatorName"] for document in documents] for documents in shown]


def test_each_batch_shows_the_operators_that_have_run_by_then_the_last_one_first(
    tmp_path: Path,
) -> None:
    feed(tmp_path, "operator-2", [0, 1, 2])
    feed(tmp_path, "operator-10", [1])
    shown = documents_in_task(StoredQuery("query", str(tmp_path), None), [0, 1, 2])
    both = ["operator-10", "operator-2"]
    assert names(shown) == [["operator-2"], both, both]


def test_operators_of_a_plan_come_as_in_the_plan_and_no_others(tmp_path: Path) -> None:
    for name in ("of-an-earlier-plan", "first", "second"):
        feed(tmp_path, name, [0])
    roots = (("second", str(tmp_path)), ("first", str(tmp_path)))
    (shown,) = documents_in_task(StoredQuery("query", "/nowhere", roots), [0])
    assert names([shown]) == [["second", "first"]]


def test_a_progress_is_asked_for_once(tmp_path: Path, tasks: list[Any]) -> None:
    feed(tmp_path, "operator-0", [0, 1])
    run = connect_run(Session(tmp_path), "query", "a run")
    assert names(run.shown.documents([(0, "at 0")])) == [["operator-0"]]
    again = connect_run(Session(tmp_path), "query", "a run")
    assert names(again.shown.documents([(0, "at 0"), (1, "at 1")])) == [["operator-0"]] * 2
    assert [batches for _, batches in tasks] == [[0], [1]]


def test_a_query_that_was_started_without_operators_costs_no_task(
    tmp_path: Path, tasks: list[Any]
) -> None:
    query = Query(Session(tmp_path), "plain")
    note_connect_run(query, StoredQuery("", str(tmp_path), ()))
    run = connect_run(query._session, query.id, query.runId)
    assert run.shown.documents([(0, "at 0"), (1, "at 1")]) == [[], []]
    assert tasks == []


def test_a_started_query_is_noted_and_found_without_its_server() -> None:
    query = Query(LostSession(), "started")
    stores = StoredQuery("", "/store", (("counts", "/other"),), {"secret": "hunter2"})
    note_connect_run(query, stores)
    run = connect_run(query._session, query.id, query.runId)
    assert run.stored == replace(stores, query_id="started")
    assert "hunter2" not in repr(run.stored)


def test_a_setting_that_comes_later_finds_the_stores(tmp_path: Path, tasks: list[Any]) -> None:
    feed(tmp_path, "operator-0", [0])
    other = connect_run(Session(tmp_path / "other"), "query", "another run")
    assert other.shown.documents([(0, "at 0")]) == [[]]
    session = Session(tmp_path)
    run = connect_run(session, "query", "another run")
    assert names(run.shown.documents([(0, "at 0")])) == [["operator-0"]]
    session.conf["spark.cowstate.storeOptions.endpoint_url"] = "http://here"
    options = connect_run(session, "query", "another run").stored.store_options
    assert options == {"endpoint_url": "http://here"}


@pytest.mark.parametrize(("setting", "enabled"), [({}, False), ({"enabled": "true"}, True)])
def test_a_run_is_enabled_as_its_session_is(
    tmp_path: Path, setting: dict[str, str], enabled: bool
) -> None:
    session: Any = Session(tmp_path)
    session.conf |= {f"spark.cowstate.{key}": value for key, value in setting.items()}
    run = connect_run(session, "query", "any run")
    assert run.shown.is_enabled() is enabled


def test_progress_comes_back_with_its_subtasks(tmp_path: Path) -> None:
    feed(tmp_path, "operator-0", [0, 1])
    query = StoredQuery("query", str(tmp_path), None)
    answer = answer_of(told_in_task, (query, True, True))
    (told,) = map(progress_of, value_of(answer))
    assert told.url.endswith(str(tmp_path / "query" / "operator-0"))
    assert (told,) == read_progress(told.url, subtasks=True)
    assert len(told.subtasks) == told.parallelism


def test_stores_are_looked_for_where_the_setting_says_if_the_plan_has_no_operator(
    tmp_path: Path, tasks: list[Any]
) -> None:
    query = Query(Session(tmp_path / "later"), "query")
    note_connect_run(query, StoredQuery("", str(tmp_path), ()))
    with pytest.raises(ConfigurationError, match=f"no store below {tmp_path}/later/query"):
        progress_of_connect(query, subtasks=False)
    feed(tmp_path / "later", "operator-0", [0])
    (told,) = progress_of_connect(query, subtasks=False)
    assert told.url.endswith(str(tmp_path / "later" / "query" / "operator-0"))
    assert len(tasks) == 2


def test_a_query_without_a_store_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    query = StoredQuery("query", str(tmp_path), None)
    with pytest.raises(ConfigurationError, match=r"or set spark\.cowstate\.store to where"):
        value_of(answer_of(told_in_task, (query, False, False)))


def test_a_store_that_is_gone_is_an_error_if_the_query_has_run(tmp_path: Path) -> None:
    query = StoredQuery("query", str(tmp_path), (("counts", str(tmp_path)),))
    assert value_of(answer_of(told_in_task, (query, False, False))) == []
    with pytest.raises(NotAStoreError, match="counts"):
        value_of(answer_of(told_in_task, (query, True, False)))
