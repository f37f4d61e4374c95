"""A driver tells its tasks the right start of a query, from the checkpoint's logs and the store."""

from __future__ import annotations

import atexit
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest

from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.runs.run_errors import EpochsLostError, NoEpochToAttachError
from spark_state.spark.queries import connect_starts, operator_starts
from spark_state.spark.queries.connect_runs import StoredQuery
from spark_state.spark.queries.connect_starts import ConnectFiles
from spark_state.spark.queries.operator_starts import (
    CheckpointLogs,
    StoreProgress,
    WayBack,
    reached_in_store,
    take_back_in_store,
    told_starts,
)
from spark_state.spark.session.planned_operators import OperatorInputs, PlannedOperator
from spark_state.subtasks.epoch_request import NEVER_RUN
from tests.support.operators.counts_operator import CountsOperator

ONLY = OperatorInputs(PlannedOperator("totals", "file:/store", 0, 1.0), (0,), 1)
FIRST_OF_TWO = OperatorInputs(PlannedOperator("totals", "file:/store", 0, 1.0), (0,), 2)


class Logs:
    """The logs of a query; each batch has its number as the offset of every source."""

    url = "file:/checkpoint"

    def __init__(self, planned: int, committed: int, sources: int = 1) -> None:
        self.planned, self.committed = planned, committed
        self._sources = sources

    def numbers(self, folder: str) -> list[int]:
        return [*range((self.planned if folder == "offsets" else self.committed) + 1)]

    def text(self, name: str) -> str | None:
        folder, _, number = name.partition("/")
        if folder == "metadata":
            return '{"id": "query"}'
        return "\n".join(["v1", "{}", *[number] * self._sources])


class Stores:
    """The answers of the stores of a query's operators; `meanwhile` is called during a look into
    the stores."""

    def __init__(
        self, reached: StoreProgress, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        self._reached, self._meanwhile = reached, meanwhile
        self.taken_back: list[WayBack] = []

    def __call__(self, function: Any, *arguments: Any) -> Any:
        if function is take_back_in_store:
            return self.take_back(*arguments)
        assert function is reached_in_store
        self._meanwhile()
        return self._reached

    def take_back(self, url: str, seconds: float, options: Any, way_back: WayBack) -> None:
        self.taken_back.append(way_back)


def told(
    logs: CheckpointLogs, reached: StoreProgress, operator: OperatorInputs = ONLY
) -> dict[str, Any]:
    stores = Stores(reached)
    text, repeated = told_starts(logs, stores, [operator])
    start: dict[str, Any] = json.loads(text)["operators"]["totals"]
    return start | {"is_repeated": bool(repeated), "goes_back": bool(stores.taken_back)}


@pytest.mark.parametrize(
    ("planned", "committed", "reached", "goes_back"),
    [
        (6, 6, StoreProgress(6, 6), False),
        (7, 6, StoreProgress(7, 7), False),
        (6, 6, StoreProgress(6, 7), False),  # the run noted the commit of batch 6
        (4, 3, StoreProgress(6, 6), True),
        (3, 3, StoreProgress(4, 4), True),  # the offsets of batch 4 were deleted
        (4, 3, StoreProgress(4, 5), True),  # the run noted the commit of batch 4
    ],
)
def test_a_query_was_taken_back_if_the_logs_lack_what_the_store_has(
    planned: int, committed: int, reached: StoreProgress, goes_back: bool
) -> None:
    assert told(Logs(planned, committed), reached)["goes_back"] == goes_back


def test_the_first_commit_is_watched_if_another_run_may_write_the_epoch_too() -> None:
    assert told(Logs(7, 6), StoreProgress(6, 6))["is_repeated"]  # a late task may still write
    assert told(Logs(6, 6), StoreProgress(7, 7))["is_repeated"]
    assert not told(Logs(6, 6), StoreProgress(6, 6))["is_repeated"]


def test_a_store_without_a_committed_epoch_is_refused() -> None:
    with pytest.raises(EpochsLostError, match=r"committed epoch 6 .* has epoch 4"):
        told(Logs(6, 6), StoreProgress(4, 5))


def test_an_operator_that_has_run_in_no_batch_has_nothing_to_find() -> None:
    class Idle(Logs):
        def text(self, name: str) -> str | None:
            return "v1\n{}\n-\n7" if name.startswith("offsets") else super().text(name)

    assert told(Idle(2, 2, sources=2), StoreProgress(), FIRST_OF_TWO)["newest_epoch"] == NEVER_RUN


def test_no_operator_is_taken_back_before_all_can_be() -> None:
    class OneThatCannot(Stores):
        def take_back(self, url: str, seconds: float, options: Any, way_back: WayBack) -> None:
            if self.taken_back and not way_back.applies:
                raise NoEpochToAttachError("dict://store", 5, "epochs 7 to 9")
            super().take_back(url, seconds, options, way_back)

    stores = OneThatCannot(StoreProgress(9, 9))
    with pytest.raises(NoEpochToAttachError):
        told_starts(Logs(5, 5), stores, [ONLY, FIRST_OF_TWO])
    assert [way_back.applies for way_back in stores.taken_back] == [False]


class Query:
    """A query whose first batch is committed when the script ends."""

    id = "query"
    runId = "run-1"  # noqa: N815 - as Spark calls it
    isActive = True  # noqa: N815
    recentProgress: ClassVar[list[dict[str, Any]]] = []  # noqa: N815


def test_a_script_that_ends_looks_for_the_first_commit_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = CountsOperator(LocalObjectStore(tmp_path / "query" / "totals"), "run-0")
    first.run_epoch(0, {0: 1})
    second = CountsOperator(LocalObjectStore(tmp_path / "query" / "totals"), "run-1")
    for subtask in range(2):
        second.run_subtask(0, subtask, {0: 2}, None)
    at_exit: list[Callable[[], None]] = []
    monkeypatch.setattr(atexit, "register", at_exit.append)
    monkeypatch.setattr(operator_starts, "_SECONDS_BETWEEN_LOOKS", 1e6)
    inputs = OperatorInputs(PlannedOperator("totals", str(tmp_path), 0, 1.0), (0,), 1)
    session = Mock(sparkContext=Mock(master="local[2]"))
    operator_starts._watch_first_commit(session, [inputs], Query())  # type: ignore[arg-type]
    assert len(first.checkpoints.bases.lineage().rivals) == 2
    monkeypatch.setattr(
        Query, "recentProgress", [{"batchId": 0, "durationMs": {"commitOffsets": 1}}]
    )
    at_exit[0]()
    assert first.checkpoints.bases.lineage().rivals == ()


class Server:
    """A Spark Connect session whose query has committed `committed` batches."""

    committed = 0
    offsets: Sequence[str] = ("0",)

    class read:  # noqa: N801 - as the session's attribute is called
        @staticmethod
        def format(name: str) -> None:
            return None

    def rows(self, path: str) -> Sequence[dict[str, Any]]:
        folder = path.rpartition("/")[2]
        if folder == "metadata":
            return [{"path": path, "content": b'{"id": "query"}'}]
        batches = range(self.committed)
        return [{"path": f"{path}/{batch}", "content": self._entry(batch)} for batch in batches]

    def _entry(self, batch: int) -> bytes:
        offsets = (str(int(each) + batch) if each.isdigit() else each for each in self.offsets)
        return "\n".join(["v1", "{}", *offsets]).encode()


CLOCK = '{"tick": 2, "query": "q"}'


@pytest.mark.parametrize(
    ("offsets", "newest"),
    [
        (["5"], 1),
        (["5", CLOCK], 1),
        ([CLOCK, "5"], 1),
        (["5", '{"batches": 1}'], None),  # an initial state
        (["5", "6"], None),
        (["-", "5"], None),
        ([CLOCK], None),  # a source of the user with offsets in the form of the clock's offsets
    ],
    ids=["only", "and a clock", "the last", "initial", "two", "no offset yet", "like a clock"],
)
def test_connect_knows_the_epochs_of_operators_behind_one_source(
    monkeypatch: pytest.MonkeyPatch, offsets: list[str], newest: int | None
) -> None:
    server = Server()
    monkeypatch.setattr(ConnectFiles, "_rows", lambda files, path: server.rows(path))
    files = ConnectFiles(server, "file:/checkpoint")  # type: ignore[arg-type]
    server.committed, server.offsets = 2, offsets
    stores = StoredQuery("query", "file:/store", (("totals", "file:/store"),))
    inputs = connect_starts._inputs(files, "totals", "file:/store", stores)
    files.numbers("commits")
    assert told(files, StoreProgress(1, 1), inputs)["newest_epoch"] == newest


def test_connect_reads_the_logs_after_the_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    monkeypatch.setattr(ConnectFiles, "_rows", lambda files, path: server.rows(path))
    files = ConnectFiles(server, "file:/checkpoint")  # type: ignore[arg-type]
    assert files.numbers("offsets") == []

    def go_on() -> None:
        server.committed = 9

    stores = Stores(StoreProgress(8, 8), go_on)
    told_starts(files, stores, [ONLY])
    assert stores.taken_back == []
