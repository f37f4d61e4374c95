"""Starts the state hosts of a local session when `enable` is called or an operator is planned.

Without this module the first task starts the hosts, after Spark has started the task's Python
worker. In a local session the executor is the driver's JVM, so the hosts can start before that. The
JVM starts the launcher, a process that starts the hosts. The launcher has the same environment as a
Python worker: the JVM's environment and the variables of spark.executorEnv.*.

On a cluster the driver does not know which executors will run tasks, so the first tasks start the
hosts.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any
from weakref import WeakSet

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import SparkSession

from spark_state.executor import HostSettings
from spark_state.spark.session.connect_sessions import is_connect
from spark_state.spark.session.operator_configuration import is_one_process

_log = logging.getLogger(__name__)

_started: WeakSet[SparkContext] = WeakSet()


def start_hosts_early(spark: SparkSession, hosts: HostSettings) -> None:
    """Start the hosts of a local session, once, if Python workers run the driver's interpreter. The
    function does not wait for the hosts."""
    if is_connect(spark):
        return
    context = spark.sparkContext
    is_local = is_one_process(context.master or "") and context.pythonExec == sys.executable
    if not is_local or context in _started:
        return
    _started.add(context)
    try:
        _start(context, hosts)
    except Py4JJavaError as error:  # the JVM cannot start a process
        _log.warning("no state host was started before the first task: %s", error.java_exception)


def _start(context: SparkContext, hosts: HostSettings) -> None:
    jvm: Any = context._jvm
    builders = jvm.java.lang.ProcessBuilder
    pid = jvm.java.lang.ProcessHandle.current().pid()
    settings = map(str, (pid, hosts.per_executor, hosts.idle_seconds))
    builder = builders([context.pythonExec, "-m", "spark_state.host.launcher", *settings])
    environment = builder.environment()
    paths = [
        jvm.org.apache.spark.api.python.PythonUtils.sparkPythonPath(),
        context.environment.get("PYTHONPATH"),
        environment.get("PYTHONPATH"),
    ]
    python_path = os.pathsep.join(path for path in paths if path)
    for name, value in {**context.environment, "PYTHONPATH": python_path}.items():
        environment.put(name, value)
    builder.redirectOutput(builders.Redirect.INHERIT)
    builder.redirectError(builders.Redirect.INHERIT)
    builder.start()
