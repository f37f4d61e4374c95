"""A task tells the host the facts of the task's epoch, and imports little."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from spark_state.processor.pickles import dumps
from spark_state.spark.operator import operator_task
from spark_state.spark.operator.operator_task import streaming_task
from spark_state.subtasks.epoch_request import SentOperator
from tests.support.operators.subtasks import operator

# A worker that runs a task. The task finds out that no batch of Spark runs it.
WORKER = """
import pickle, sys
function = pickle.load(sys.stdin.buffer)
try:
    next(function(iter(())))
except Exception as error:
    print(type(error).__name__)
print(*(name for name in sys.modules if name.startswith(("spark_state", "checkpoint_store"))))
"""
# A worker that runs two tasks without a host. Prints the numbers of frozen objects and of objects
# that a collection visits, before the tasks and after each task.
REUSED_WORKER = """
import gc, pickle, sys
from types import SimpleNamespace
from spark_state.spark.operator import operator_task
operator_task._identify = lambda *_: SimpleNamespace(subtask=0)
operator_task._executor = operator_task.connect = lambda *_: None
operator_task.run_epoch = lambda *_: iter(())
function = pickle.load(sys.stdin.buffer)
print(gc.get_freeze_count(), len(gc.get_objects()))
for _ in range(2):
    list(function(iter(())))
    print(gc.get_freeze_count(), len(gc.get_objects()))
"""
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
    sent = SentOperator.of(operator(tmp_path))
    task = operator_task._identify(context, sent)
    assert (task.run_id, task.epoch, task.attempt) == (RUN, 3, 7)
    assert task.ended_runs == ("run-1", "run-2")
    del properties["cowstate.endedRuns"]
    assert operator_task._identify(context, sent).ended_runs == ()


def test_a_worker_imports_neither_the_engine_nor_the_stores(tmp_path: Path) -> None:
    """The first task of each worker waits for its imports."""
    function = streaming_task(operator(tmp_path))
    command = [sys.executable, "-c", WORKER]
    run = subprocess.run(command, input=dumps(function), capture_output=True, check=True)
    error, modules = run.stdout.decode().splitlines()
    assert error == "BatchIdentityError"
    assert "spark_state.host.client" in modules
    for heavy in ("processor.processor_run", "keyed_state", "heap", "operators.c", "epochs"):
        assert heavy not in modules, modules


def test_collections_after_tasks_do_not_visit_the_imported_modules(tmp_path: Path) -> None:
    """Spark's worker collects garbage after each task, and the next task waits for that."""
    function = streaming_task(operator(tmp_path))
    command = [sys.executable, "-c", REUSED_WORKER]
    run = subprocess.run(command, input=dumps(function), capture_output=True, check=True)
    begun, first, second = (tuple(map(int, line.split())) for line in run.stdout.splitlines())
    assert begun[0] == 0
    for frozen, visited in first, second:
        assert frozen > begun[1] / 2 > 10 * visited
    assert second[0] <= first[0]
