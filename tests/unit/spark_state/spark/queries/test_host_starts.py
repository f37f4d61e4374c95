"""The hosts of an operator's query start with the query, once in an application."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from pyspark import cloudpickle

from spark_state import executor as executor_module
from spark_state.executor import Executor
from spark_state.host.launcher import connect
from spark_state.spark.queries import host_starts
from spark_state.spark.queries.host_starts import start_hosts
from spark_state.spark.session.planned_operators import PlannedOperator
from spark_state.subtasks.epoch_request import HostSettings
from tests.support.operators.executors import state_hosts

pytestmark = pytest.mark.process


class Context:
    """A SparkContext that runs the tasks of a job in the thread that submits the job."""

    defaultParallelism = 3  # noqa: N815 - Spark's name

    def __init__(self, application: str) -> None:
        self.applicationId = application
        self.jobs: list[int] = []
        self.done = threading.Event()

    def setLocalProperty(self, key: str, value: str) -> None:  # noqa: N802
        assert (key, value) == ("spark.job.description", "cowstate starts state hosts")

    def parallelize(self, numbers: range, tasks: int) -> Context:
        assert len(numbers) == tasks
        self.jobs.append(tasks)
        return self

    def foreachPartition(self, start: Callable[[Iterable[int]], None]) -> None:  # noqa: N802
        travelled = pickle.loads(cloudpickle.dumps(start))
        for number in range(self.jobs[-1]):
            travelled(iter([number]))
        self.done.set()


def operator(parallelism: int, hosts: HostSettings | None) -> PlannedOperator:
    return PlannedOperator("totals", "file:/store", parallelism, 1.0, hosts=hosts)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, executor: Executor) -> Callable[..., None]:
    monkeypatch.setattr(host_starts, "_started", set())
    monkeypatch.setattr(executor_module, "executor_of_worker", lambda: executor)
    untyped: Any = start_hosts
    return untyped


def test_each_slot_gets_a_host_before_the_first_batch(
    start: Callable[..., None], executor: Executor
) -> None:
    context = Context("first")
    start(context, [operator(8, HostSettings(2, 600))])
    assert context.done.wait(60)
    assert context.jobs == [3]
    assert len(state_hosts(executor.pid)) == 2
    before = state_hosts(executor.pid)
    connect(executor, 1, 600).close()
    assert state_hosts(executor.pid) == before
    start(context, [operator(8, HostSettings(2, 600))])
    assert context.jobs == [3]
    other = Context("second")
    start(other, [operator(1, HostSettings(2, 600))])
    assert other.done.wait(60)
    assert other.jobs == [1]


def test_operators_that_another_process_has_planned_start_no_hosts(
    start: Callable[..., None],
) -> None:
    context = Context("first")
    start(context, [operator(8, None)])
    assert context.jobs == []


def test_a_host_that_cannot_start_is_left_to_the_first_batch(
    start: Callable[..., None], monkeypatch: pytest.MonkeyPatch, executor: Executor
) -> None:
    def fail() -> Executor:
        raise OSError("no executor")

    monkeypatch.setattr(executor_module, "executor_of_worker", fail)
    context = Context("first")
    start(context, [operator(1, HostSettings(1, 600))])
    assert context.done.wait(60)
    assert state_hosts(executor.pid) == []
