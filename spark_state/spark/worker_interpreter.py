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

from spark_state.spark.operator_configuration import is_local_master

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
        spark.dataSource.register(import_module(_DATA_SOURCES).DefaultSource)


def _chosen(settings: Mapping[str, Any]) -> str:
    return str(settings.get(_SETTING) or sys.executable)


def _of_jvm(context: SparkContext) -> str:
    jvm: Any = context._jvm
    environment = jvm.java.lang.System.getenv()
    return str(environment.get(_DRIVER_PYTHON) or environment.get(_PYTHON) or "python3")


def _is_beside(command: str, interpreter: str) -> bool:
    """Whether `command` is in the directory of `interpreter`: a virtual environment's has several
    names for one interpreter, and symbolic links to one of another environment."""
    path = shutil.which(command)
    return path is not None and Path(path).parent == Path(interpreter).parent
