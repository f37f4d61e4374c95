"""Logical plans of the JVM: their parts in Python, and DataFrames from plans.

`columns_of` and `quoted` also work without a JVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from spark_state.spark.session.connect_sessions import is_connect


def elements(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def entries_of(scala_map: Any) -> dict[Any, Any]:
    pairs, entries = scala_map.iterator(), {}
    while pairs.hasNext():
        pair = pairs.next()
        entries[pair._1()] = pair._2()
    return entries


def class_of(plan: Any) -> str:
    """The name of a node's class, without its package."""
    return str(plan.getClass().getSimpleName())


def analyzed_plan(df: DataFrame) -> Any:
    """The plan of a DataFrame, with all names resolved."""
    return df._jdf.queryExecution().analyzed()


def nodes_of(plan: Any) -> Iterator[Any]:
    """The nodes of a plan, each before its children."""
    yield plan
    for child in elements(plan.children()):
        yield from nodes_of(child)


def output_of(df: DataFrame) -> list[Any]:
    """The attributes of a DataFrame, in order."""
    return elements(analyzed_plan(df).output())


def columns_of(df: DataFrame) -> list[Column]:
    """The columns of a DataFrame, in order. With Spark Connect, column names must be distinct."""
    if is_connect(df.sparkSession):
        return [F.col(quoted(name)) for name in df.columns]
    return [column_of(df.sparkSession, attribute) for attribute in output_of(df)]


def quoted(name: str) -> str:
    """The name of a column, quoted for an expression."""
    return f"`{name.replace('`', '``')}`"


def column_of(spark: SparkSession, expression: Any) -> Column:
    jvm: Any = spark._jvm
    return ClassicColumn(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def dataframe_of(spark: SparkSession, plan: Any) -> DataFrame:
    jvm: Any = spark._jvm
    rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan)
    return ClassicDataFrame(rows, spark)
