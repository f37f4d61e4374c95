"""Spark's own errors, raised for calls that Spark's own operator would refuse, too."""

from __future__ import annotations

from typing import Any

from pyspark.errors.exceptions.captured import convert_exception
from pyspark.sql import SparkSession

from spark_state.spark.session.connect_sessions import is_connect

# The SQL state of each condition in Spark; a client of Spark Connect cannot look up the state.
_SQL_STATES = {
    "CANNOT_ASSIGN_EVENT_TIME_COLUMN_WITHOUT_WATERMARK": "42611",
    "EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE": "42K09",
    "MULTIPLE_EVENT_TIME_COLUMNS": "42K09",
}


def analysis_error(spark: SparkSession, condition: str, **parameters: str) -> Exception:
    """Spark's AnalysisException of this error condition, with Spark's message. With Spark Connect
    the message is the condition and its parameters."""
    if is_connect(spark):
        return _connect_error(condition, parameters)
    jvm: Any = spark._jvm
    scala_parameters = jvm.PythonUtils.toScalaMap(dict(parameters))
    error = jvm.org.apache.spark.sql.AnalysisException(condition, scala_parameters)
    return convert_exception(error)


def _connect_error(condition: str, parameters: dict[str, str]) -> Exception:
    from pyspark.errors.exceptions.connect import AnalysisException

    described = ", ".join(f"{name} {value}" for name, value in parameters.items())
    return AnalysisException(
        f"[{condition}] {described}".strip(),
        errorClass=condition,
        messageParameters=parameters,
        sql_state=_SQL_STATES[condition],
    )
