"""Puts the cause of a failure on the first line of Spark's exception.

Spark shows a Python error after a page of traceback, and a task's error after a report of the
task's attempts. With this module the texts of PySpark's exceptions begin with the cause and an
empty line; then comes Spark's whole text. Error conditions and their parameters do not change.

The change applies to all exceptions of streaming queries, and to errors of cowstate elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.errors.exceptions.captured import CapturedException, PythonException

from spark_state.spark.session.replaced_methods import replace_once
from spark_state.spark.session.worker_loading import requirement

_MARK = "_cowstate_says_cause_first"
_PACKAGES = ("checkpoint_store.", "spark_state.", "datasources.")
# Python's traceback, and the texts that cowstate and Spark add to an error.
_TRACEBACK = "Traceback (most recent call last):"
_ADDED = re.compile(r"\n(?:In the state host:|=== Streaming Query ===|\nJVM stacktrace:)")
_PYTHON_ERROR = re.compile(r"^(?P<module>(?:\w+\.)*)(?P<error>\w+(?:: .*)?)$", re.MULTILINE)
_OF_QUERY = re.compile(r"terminated with exception: (.*)", re.DOTALL)
_OF_TASK = re.compile(r"most recent failure: Lost task [^:]*: (.*)", re.DOTALL)
_JAVA_PACKAGE = re.compile(r"^(?:[a-z]\w*\.)+(?=[A-Z]\w*: )")
_CONDITION = re.compile(r"^\[[A-Z][\w.]*\] ")
# Packages that Spark's worker imports before the worker loads a function of cowstate.
_LACKING = re.compile(r"ModuleNotFoundError: (No module named '(?:numpy|pandas|pyarrow)')")
_SQL_STATE = re.compile(r"(?: SQLSTATE: \w{5})+$")
_SOURCES = re.compile(
    r"There are \[(\d+)\] sources in the checkpoint offsets and now there are \[(\d+)\] sources"
)


def say_causes_first() -> None:
    """Let the texts of PySpark's exceptions begin with their cause, in this process. Safe to call
    again."""
    replace_once(CapturedException, "__str__", _MARK, _with_cause)
    if "__str__" in vars(PythonException):  # since Spark 4.3
        replace_once(PythonException, "__str__", _MARK, _with_cause)
    try:
        from pyspark.errors.exceptions.connect import SparkConnectGrpcException
    except ImportError:  # the libraries of Spark Connect are not installed
        return
    replace_once(SparkConnectGrpcException, "__str__", _MARK, _with_cause)


def _with_cause(spark_text: Callable[[Any], str]) -> Callable[[Any], str]:
    @wraps(spark_text)
    def text_of(error: Any) -> str:
        text = spark_text(error)
        of_query = isinstance(error, StreamingQueryException)
        cause = cause_of_query(text) if of_query else own_error_in(text)
        return text if cause is None or text.startswith(cause) else f"{cause}\n\n{text}"

    return text_of


def cause_of_query(text: str) -> str | None:
    """The cause of a failed query, in one line, from the text of its exception; None if the text
    does not tell the cause."""
    told = _ADDED.split(text, maxsplit=1)[0]
    error = _python_error(told)
    return _advised(error[1]) if error else _jvm_error(told)


def own_error_in(text: str) -> str | None:
    """The line of the last Python error in an exception's text, if the error is of cowstate, or a
    Python worker lacks a package that cowstate needs; otherwise None."""
    error = _python_error(_ADDED.split(text, maxsplit=1)[0])
    if error and (error[0].startswith(_PACKAGES) or _LACKING.match(error[1])):
        return _advised(error[1])
    return None


def _python_error(text: str) -> tuple[str, str] | None:
    """The last Python error in a text: the module of the error's class, with a dot at the end, and
    the line of the error. None without a traceback.

    The last traceback in the text counts. If an error was raised from another error, the last
    traceback shows the final error. If a text quotes another text with a traceback, the last
    traceback is in the quoted text.
    """
    _, traceback, frames = text.rpartition(_TRACEBACK)
    match = _PYTHON_ERROR.search(frames) if traceback else None
    return (match["module"], match["error"]) if match else None


def _jvm_error(text: str) -> str | None:
    of_query = _OF_QUERY.search(text)
    failure = of_query[1] if of_query else text
    of_task = _OF_TASK.search(failure)
    line = (of_task[1] if of_task else failure).strip().partition("\n")[0]
    return _advised(_CONDITION.sub("", _JAVA_PACKAGE.sub("", line))) or None


def _advised(cause: str) -> str:
    """The cause. If an error of Spark has its reason in cowstate, the reason and the way out come
    first."""
    cause = _SQL_STATE.sub("", cause)
    sources = _SOURCES.search(cause)
    if sources:
        return (
            f"the query has {sources[2]} sources, and had {sources[1]} when it wrote its "
            "checkpoint. An operator of cowstate has a source of its own in a time mode, and for "
            "an initial state, so neither can come or go: go back to the former timeMode and "
            "initialState, or begin with a new checkpoint and spark.cowstate.restoreFrom "
            f"({cause})"
        )
    lacking = _LACKING.match(cause)
    if lacking:
        return (
            f"{lacking[1]}: the Python of an executor lacks packages that cowstate needs. Run "
            f"`pip install {requirement()}` for it on every machine, or set PYSPARK_PYTHON (with "
            "spark-submit: --conf spark.pyspark.python=…) to an interpreter that has the packages "
            "of the driver"
        )
    return cause
