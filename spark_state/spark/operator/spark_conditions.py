"""Spark's own errors, for what Spark's own operator refuses, too."""

from __future__ import annotations

from typing import Any

from pyspark.errors.exceptions.captured import convert_exception
from pyspark.sql import SparkSession


def analysis_error(spark: SparkSession, condition: str, **parameters: str) -> Exception:
    """Spark's AnalysisException of this error condition, with Spark's message."""
    jvm: Any = spark._jvm
    scala_parameters = jvm.PythonUtils.toScalaMap(dict(parameters))
    error = jvm.org.apache.spark.sql.AnalysisException(condition, scala_parameters)
    return convert_exception(error)
