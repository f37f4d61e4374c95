"""Operators in the progress of a query: an error leaves all of it as it comes from Spark."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress

from spark_state.spark.operator import query_progress

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


class Run:
    """A run of an enabled session, and what its operator shows for each batch."""

    is_failing = False

    def __init__(self, *documents: dict[str, Any]) -> None:
        self._documents = documents

    def is_enabled(self) -> bool:
        return True

    def documents(self, moments: Sequence[tuple[int, str]]) -> list[list[dict[str, Any]]]:
        assert all(moment == (FIELDS["batchId"], FIELDS["timestamp"]) for moment in moments)
        return [[document] for document in self._documents]


def progress_of_spark() -> StreamingQueryProgress:
    return StreamingQueryProgress.fromJson(FIELDS)


def test_operators_are_in_the_progress_and_in_its_json() -> None:
    progress = progress_of_spark()
    query_progress._show([progress], lambda: Run(DOCUMENT))
    assert [operator.numRowsTotal for operator in progress.stateOperators] == [7]
    assert json.loads(progress.json)["stateOperators"] == [DOCUMENT]


@pytest.mark.parametrize("wrong", [{"operatorName": "counts"}, {**DOCUMENT, "customMetrics": 7}])
def test_what_cannot_be_shown_leaves_all_as_it_comes_from_spark_and_the_log_says_so_once(
    wrong: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = progress_of_spark(), progress_of_spark()
    run = Run(DOCUMENT, wrong)
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
        query_progress._show([progress], lambda: Run(DOCUMENT))
    assert progress.stateOperators == []
    assert "lacks its operators" in caplog.text
