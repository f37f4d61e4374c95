"""Operators are shown in the progress of a query and in events of Spark Connect.

If an error happens, the progress and the events stay as Spark made them.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyspark.sql.connect.proto as pb2
import pytest
from pyspark.sql.connect.streaming.query import StreamingQueryListenerBus
from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    StreamingQueryProgress,
)

from spark_state.spark.queries import query_progress

FIELDS: dict[str, Any] = {
    "id": "8a3ad1c3-6b7a-4d7d-9d1a-1f4f1b1f0001",
    "runId": "8a3ad1c3-6b7a-4d7d-9d1a-1f4f1b1f0002",
    "name": None,
    "timestamp": "2026-01-31T00:00:00.000Z",
    "batchId": 4,
    "batchDuration": 1,
    "durationMs": {},
    "stateOperators": [],
    "sources": [],
    "sink": {"description": "a sink", "numOutputRows": 1},
}
DOCUMENT = {
    "operatorName": "counts",
    "numRowsTotal": 7,
    "numRowsUpdated": 1,
    "allUpdatesTimeMs": 1,
    "numRowsRemoved": 0,
    "allRemovalsTimeMs": 0,
    "commitTimeMs": 1,
    "memoryUsedBytes": 1,
    "numRowsDroppedByWatermark": 0,
    "numShufflePartitions": 2,
    "numStateStoreInstances": 2,
    "customMetrics": {},
}
PATIENCE_SECONDS = 20


class EnabledRun:
    """A run of an enabled session with the operator's document for each batch."""

    is_failing = False

    def __init__(self, *documents: dict[str, Any]) -> None:
        self._documents = documents
        self.shown = self

    def is_enabled(self) -> bool:
        return True

    def documents(self, moments: Sequence[tuple[int, str]]) -> list[list[dict[str, Any]]]:
        assert all(moment == (FIELDS["batchId"], FIELDS["timestamp"]) for moment in moments)
        return [[document] for document in self._documents]


class Server:
    """A server that sends `events` until the listener is removed."""

    def __init__(self) -> None:
        self.events: queue.Queue[str | None] = queue.Queue()
        self.is_removing = threading.Event()
        self._session = self.client = self

    def execute_command(self, _command: object) -> None:
        self.is_removing.set()
        self.events.put(None)

    def results(self) -> Iterator[dict[str, Any]]:
        for event in iter(self.events.get, None):
            result = pb2.StreamingQueryListenerEventsResult()
            kind = pb2.StreamingQueryEventType.QUERY_PROGRESS_EVENT
            result.events.add(event_json=event, event_type=kind)
            yield {"streaming_query_listener_events_result": result}


class Listener(StreamingQueryListener):
    """A listener that notes its events; `then` is called after a progress event."""

    def __init__(self, then: Callable[[], Any] = bool) -> None:
        self.heard: list[Any] = []
        self._then = then

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        self.heard.append(f"start of {event.name}")

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self.heard.append([at.operatorName for at in event.progress.stateOperators])
        self._then()

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        self.heard.append(event)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self.heard.append(event)


def connected(server: Server) -> Any:
    """Make a client's listener bus that shows operators."""

    class Bus(StreamingQueryListenerBus):
        def _register_server_side_listener(self) -> Iterator[dict[str, Any]]:
            return server.results()

    query_progress._show_operators_in_connect_events(Bus)
    return Bus(server)  # type: ignore[arg-type]


def ends(function: Callable[[], None]) -> bool:
    """Return True if a call in another thread ends."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    return not thread.is_alive()


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A bus that runs in the test's thread, without events from a server."""
    monkeypatch.setattr(query_progress, "connect_run", lambda *_: EnabledRun(DOCUMENT))
    return connected(Server())


def progress_event() -> QueryProgressEvent:
    return QueryProgressEvent.fromJson({"progress": FIELDS})


def start_event() -> QueryStartedEvent:
    return QueryStartedEvent.fromJson({**FIELDS, "name": "a query"})


def progress_of_spark() -> StreamingQueryProgress:
    return StreamingQueryProgress.fromJson(FIELDS)


def test_operators_are_in_the_progress_and_in_its_json() -> None:
    progress = progress_of_spark()
    query_progress._show([progress], lambda: EnabledRun(DOCUMENT))
    assert [operator.numRowsTotal for operator in progress.stateOperators] == [7]
    assert json.loads(progress.json)["stateOperators"] == [DOCUMENT]


@pytest.mark.parametrize("wrong", [{"operatorName": "counts"}, {**DOCUMENT, "customMetrics": 7}])
def test_what_cannot_be_shown_leaves_all_as_it_comes_from_spark_and_the_log_says_so_once(
    wrong: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = progress_of_spark(), progress_of_spark()
    run = EnabledRun(DOCUMENT, wrong)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            query_progress._show([first, second], lambda: run)
    for progress in (first, second):
        assert progress.stateOperators == []
        assert json.loads(progress.json) == FIELDS
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "lacks its operators" in caplog.text


def test_json_of_spark_without_operators_loses_no_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    progress = progress_of_spark()
    progress._jdict = {"no": "stateOperators"}  # type: ignore[assignment]
    with caplog.at_level(logging.WARNING):
        query_progress._show([progress], lambda: EnabledRun(DOCUMENT))
    assert progress.stateOperators == []
    assert "lacks its operators" in caplog.text


def test_removing_a_listener_while_stores_are_read_waits_for_the_event_and_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server()

    class ReadsWhileRemoving(EnabledRun):
        def documents(self, moments: Sequence[tuple[int, str]]) -> list[list[dict[str, Any]]]:
            assert server.is_removing.wait(PATIENCE_SECONDS)
            return super().documents(moments)

    monkeypatch.setattr(query_progress, "connect_run", lambda *_: ReadsWhileRemoving(DOCUMENT))
    bus, listener = connected(server), Listener()
    bus.append(listener)
    server.events.put(json.dumps({"progress": FIELDS}))
    is_removed = ends(lambda: bus.remove(listener))
    if not is_removed:
        bus._lock.release()  # so that the threads end, and the other tests can run
    assert is_removed
    assert listener.heard == [["counts"]]
    assert bus._listener_bus == []


def test_each_event_reaches_its_method_of_each_listener_even_if_one_of_them_raises(
    bus: Any,
) -> None:
    first, second = Listener(lambda: [][0]), Listener()
    bus._listener_bus += [first, second]
    bus.post_to_all(start_event())
    with pytest.warns(UserWarning, match="threw an exception"):
        bus.post_to_all(progress_event())
    assert first.heard == second.heard == ["start of a query", ["counts"]]


def test_a_listener_may_remove_itself_and_others_and_only_the_removed_hear_nothing(
    bus: Any,
) -> None:
    def remove_two() -> None:
        assert ends(lambda: bus.remove(first))
        assert ends(lambda: bus.remove(others[0]))

    first, others = Listener(remove_two), [Listener(), Listener()]
    bus._listener_bus += [first, *others]
    bus.post_to_all(progress_event())
    assert [listener.heard for listener in (first, *others)] == [[["counts"]], [], [["counts"]]]


def test_a_start_in_another_thread_waits_until_listeners_have_had_the_event_before(
    bus: Any,
) -> None:
    starter = threading.Thread(target=lambda: bus.post_to_all(start_event()), daemon=True)

    def start_a_query() -> None:
        starter.start()
        starter.join(0.2)  # the start cannot end yet

    listener = Listener(start_a_query)
    last = Listener()
    bus._listener_bus += [listener, last]
    bus.post_to_all(progress_event())
    starter.join(PATIENCE_SECONDS)
    assert last.heard == [["counts"], "start of a query"]
