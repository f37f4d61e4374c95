"""Logical plans of the JVM: their parts in Python, and DataFrames of plans."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame


def elements(sequence: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [sequence.apply(index) for index in range(sequence.size())]


def analyzed_plan(df: DataFrame) -> Any:
    """The plan of a DataFrame, all names in it resolved."""
    return df._jdf.queryExecution().analyzed()


def output_of(df: DataFrame) -> list[Any]:
    """The attributes of a DataFrame, in order."""
    return elements(analyzed_plan(df).output())


def column_of(spark: SparkSession, expression: Any) -> Column:
    """The column of an expression in the JVM."""
    jvm: Any = spark._jvm
    return ClassicColumn(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def dataframe_of(spark: SparkSession, plan: Any) -> DataFrame:
    """The DataFrame of a plan that is resolved."""
    jvm: Any = spark._jvm
    rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan)
    return ClassicDataFrame(rows, spark)
