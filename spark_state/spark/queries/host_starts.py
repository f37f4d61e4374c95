"""Starts Python workers and state hosts while Spark plans the first batch of an application.

The tasks of the first batch would start the workers and hosts otherwise, and would wait for
Python's imports. A job of Spark, run by a thread of its own, starts a worker and a host for each
task slot. The job is a hint: if the job fails, the first batch starts what is missing, and its
tasks report the errors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from pyspark import SparkContext

from spark_state.spark.session.planned_operators import PlannedOperator
from spark_state.subtasks.epoch_request import HostSettings

_DESCRIPTION = "cowstate starts state hosts"
_started: set[str] = set()


def start_hosts(context: SparkContext, operators: Sequence[PlannedOperator]) -> None:
    """Begin to start the hosts of the operators, once in an application. Returns at once."""
    application, hosts = context.applicationId, operators[0].hosts
    if hosts is None or application in _started:
        return
    _started.add(application)
    tasks = min(context.defaultParallelism, max(planned.parallelism for planned in operators))
    start = _host_starter(hosts)

    def run() -> None:
        # A stopped context raises errors of any type. All other errors meet the first batch, too.
        with suppress(Exception):
            context.setLocalProperty("spark.job.description", _DESCRIPTION)
            context.parallelize(range(tasks), tasks).foreachPartition(start)

    threading.Thread(target=run, name=_DESCRIPTION, daemon=True).start()


def _host_starter(hosts: HostSettings) -> Callable[[Iterable[int]], None]:
    """Return the function of a task. A nested function is pickled by value, so a worker without
    cowstate can load the function."""
    per_executor, idle_seconds = hosts.per_executor, hosts.idle_seconds

    def start(partition: Iterable[int]) -> None:
        with suppress(Exception):  # the first batch meets the same error, and reports it
            from spark_state.executor import executor_of_worker
            from spark_state.host.launcher import connect

            for number in partition:
                connect(executor_of_worker(), number % per_executor, idle_seconds).close()

    return start
