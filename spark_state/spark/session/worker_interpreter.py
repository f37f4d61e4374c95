"""Chooses the interpreter of Spark's Python workers.

Spark starts workers with the interpreter that PYSPARK_PYTHON names in the driver's environment or,
if the variable is not set, with `python3` of the PATH. The interpreter of the driver does not
matter. The setting `spark.pyspark.python` has an effect only if spark-submit starts the driver. To
find data sources written in Python, the JVM starts a Python process. The interpreter of this
process comes from the environment in which the JVM was launched.

On one machine the interpreter of the driver has cowstate. So this module lets workers run the
interpreter in `spark.pyspark.python` or, without this setting, the driver's interpreter. This
module changes nothing if PYSPARK_PYTHON is set, nor on a cluster, where the other machines are
unknown.
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
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.udf import _wrap_function

from spark_state.spark.session.connect_sessions import is_connect
from spark_state.spark.session.operator_configuration import is_local_master

_PYTHON, _DRIVER_PYTHON = "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"
_SETTING = "spark.pyspark.python"
_DATA_SOURCES = "pyspark_cowstate"
_MOST_ROWS_KEY = "spark.sql.execution.arrow.maxRecordsPerBatch"
_GREATEST_BOUND = 2**31 - 1


@contextmanager
def driver_interpreter(settings: Mapping[str, Any]) -> Iterator[None]:
    """Let the workers of a Spark that is launched inside the `with` block run the interpreter in
    `spark.pyspark.python` or, without this setting, the driver's interpreter. Does nothing if
    PYSPARK_PYTHON is set, or if the settings name no local master."""
    if os.environ.get(_PYTHON) or not is_local_master(str(settings.get("spark.master", ""))):
        yield
        return
    os.environ[_PYTHON] = _chosen(settings)
    try:
        yield
    finally:
        del os.environ[_PYTHON]


def use_driver_interpreter(spark: SparkSession) -> None:
    """Let the workers of a running session run the interpreter in `spark.pyspark.python` or,
    without this setting, the driver's interpreter. Safe to call again.

    Does nothing if PYSPARK_PYTHON is set, or if the master is not local. Does nothing with Spark
    Connect: the server has already chosen its interpreter. If the JVM of classic Spark looks up
    data sources with another interpreter, the function also registers format("cowstate"), because
    the other interpreter may not have cowstate.
    """
    if is_connect(spark):
        return
    context = spark.sparkContext
    if os.environ.get(_PYTHON) or not is_local_master(context.master or ""):
        return
    chosen = _chosen(dict(context.getConf().getAll()))
    if context.pythonExec == chosen:
        return
    context.pythonExec = chosen
    if not _is_beside(_interpreter_of_jvm(context), chosen):
        register_source(spark, import_module(_DATA_SOURCES).DefaultSource)


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source, unless the JVM already knows a source of this name. With Spark
    Connect the source is always registered, and replaces a source of the same name.

    Classic Spark's `spark.dataSource.register` refuses a name for which the JVM has a class. The
    jar has such a class for the name cowstate, although the source is written in Python. So in
    classic Spark this function registers the source with the JVM's data source manager instead.
    """
    if is_connect(spark):
        spark.dataSource.register(source)
        return
    manager: Any = spark._jsparkSession.sessionState().dataSourceManager()
    if not manager.dataSourceExists(source.name()):
        jvm: Any = spark.sparkContext._jvm
        python = jvm.org.apache.spark.sql.execution.datasources.v2.python
        pickled = _wrap_function(spark.sparkContext, source)
        manager.registerDataSource(source.name(), python.UserDefinedPythonDataSource(pickled))


def stream_of(
    spark: SparkSession, source: type[DataSource], options: Mapping[str, str]
) -> DataFrame:
    """Register a data source, and return a stream of the source. Spark's processes for Python
    sources refuse a session without a limit on the rows of an Arrow batch. The greatest limit has
    the same effect as no limit, so this function sets the greatest limit."""
    if int(spark.conf.get(_MOST_ROWS_KEY) or 0) <= 0:
        spark.conf.set(_MOST_ROWS_KEY, str(_GREATEST_BOUND))
    register_source(spark, source)
    return spark.readStream.format(source.name()).options(**options).load()


def _chosen(settings: Mapping[str, Any]) -> str:
    return str(settings.get(_SETTING) or sys.executable)


def _interpreter_of_jvm(context: SparkContext) -> str:
    jvm: Any = context._jvm
    environment = jvm.java.lang.System.getenv()
    return str(environment.get(_DRIVER_PYTHON) or environment.get(_PYTHON) or "python3")


def _is_beside(command: str, interpreter: str) -> bool:
    """Return True if `command` is another name of `interpreter`, in the same directory. Both
    conditions are needed: a directory may have several interpreters, and the interpreter of a
    virtual environment links to an interpreter in another directory."""
    path = Path(shutil.which(command) or "")
    beside = Path(interpreter)
    return path.parent == beside.parent and path.resolve() == beside.resolve()
