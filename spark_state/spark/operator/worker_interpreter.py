"""Which interpreter Spark's Python workers run.

Spark starts workers with PYSPARK_PYTHON of the driver's environment, or else with `python3` of its
PATH; it does not look at the interpreter that the driver runs. Its setting `spark.pyspark.python`
counts only where spark-submit starts the driver. Data sources written in Python are looked up by a
process of the JVM, by the environment that the JVM was launched with.

On one machine the interpreter of the driver is the one that has cowstate. On a cluster nobody knows
what stands on the other machines, so nothing is changed there.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.udf import _wrap_function

from spark_state.spark.operator.operator_configuration import is_local_master

_PYTHON, _DRIVER_PYTHON = "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"
_SETTING = "spark.pyspark.python"
_DATA_SOURCES = "pyspark_cowstate"


@contextmanager
def driver_interpreter(settings: Mapping[str, Any]) -> Iterator[None]:
    """Let a Spark that is launched meanwhile with these settings run the driver's interpreter, if
    they name a local master, and the user has not chosen another one."""
    if os.environ.get(_PYTHON) or not is_local_master(str(settings.get("spark.master", ""))):
        yield
        return
    os.environ[_PYTHON] = _chosen(settings)
    try:
        yield
    finally:
        del os.environ[_PYTHON]


def use_driver_interpreter(spark: SparkSession) -> None:
    """As `driver_interpreter`, for a session that runs. May be called again.

    What the JVM looks up with another interpreter by itself, format("cowstate"), is registered.
    """
    context = spark.sparkContext
    if os.environ.get(_PYTHON) or not is_local_master(context.master or ""):
        return
    chosen = _chosen(dict(context.getConf().getAll()))
    if context.pythonExec == chosen:
        return
    context.pythonExec = chosen
    if not _is_beside(_of_jvm(context), chosen):
        _register(spark, import_module(_DATA_SOURCES).DefaultSource)


def _register(spark: SparkSession, source: type[DataSource]) -> None:
    """Unless the JVM has found it. `spark.dataSource.register` refuses a name that a class of the
    JVM has, and the jar has one of this name, which asks for the source in Python."""
    manager: Any = spark._jsparkSession.sessionState().dataSourceManager()
    if not manager.dataSourceExists(source.name()):
        jvm: Any = spark.sparkContext._jvm
        python = jvm.org.apache.spark.sql.execution.datasources.v2.python
        pickled = _wrap_function(spark.sparkContext, source)
        manager.registerDataSource(source.name(), python.UserDefinedPythonDataSource(pickled))


def _chosen(settings: Mapping[str, Any]) -> str:
    return str(settings.get(_SETTING) or sys.executable)


def _of_jvm(context: SparkContext) -> str:
    jvm: Any = context._jvm
    environment = jvm.java.lang.System.getenv()
    return str(environment.get(_DRIVER_PYTHON) or environment.get(_PYTHON) or "python3")


def _is_beside(command: str, interpreter: str) -> bool:
    """Whether `command` is another name of `interpreter` in its directory. A directory may have
    several interpreters, and links to that of a virtual environment are in another directory."""
    path = Path(shutil.which(command) or "")
    beside = Path(interpreter)
    return path.parent == beside.parent and path.resolve() == beside.resolve()
