"""A task tells the host the facts of the task's epoch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from spark_state.spark.operator import operator_task
from tests.support.operators.subtasks import operator

RUN = "6f0a52d5-7a3f-4f5b-9b5b-1f6d3a1d8a55"


def test_a_task_names_the_runs_that_its_driver_named(tmp_path: Path) -> None:
    properties = {
        "sql.streaming.queryId": "query",
        "streaming.sql.batchId": "3",
        "spark.jobGroup.id": RUN,
        "cowstate.endedRuns": "run-1,run-2",
    }
    context: Any = SimpleNamespace(
        getLocalProperty=properties.get, partitionId=lambda: 0, taskAttemptId=lambda: 7
    )
    task = operator_task._identify(context, operator(tmp_path))
    assert (task.run_id, task.epoch, task.attempt) == (RUN, 3, 7)
    assert task.ended_runs == ("run-1", "run-2")
    del properties["cowstate.endedRuns"]
    assert operator_task._identify(context, operator(tmp_path)).ended_runs == ()
