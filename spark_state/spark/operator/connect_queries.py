"""Checks queries of Spark Connect that run operators of cowstate, before the server starts them.

A function of `foreachBatch` runs in a process of the server. Its actions are requests of a client:
their tasks do not know the query, and nobody completes an epoch that the function did not run. So
such a query is refused (I5). Sinks run every partition.

A checkpoint is on the server, so Spark's own reader there says which operators have state in it,
see `state_of_spark`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import unwrap
from typing import Any

from pyspark.sql import DataFrame

from spark_state.errors import UnsupportedOperationError
from spark_state.spark.operator.planned_operators import operator_names_below
from spark_state.spark.operator.state_of_spark import LOCATION, LOCATIONS_KEY, has_state_of_spark

_MARK = "_cowstate_checks"
_STATE_OF_SPARK = "transformWithState"


def check_connect_queries() -> None:
    """Check later starts of queries of Spark Connect in this process. May be called again."""
    from pyspark.sql.connect.streaming.readwriter import DataStreamWriter

    for name in ("start", "toTable"):
        method = getattr(DataStreamWriter, name)
        if not hasattr(method, _MARK):
            setattr(DataStreamWriter, name, _replacement(method))


def _replacement(spark_method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(spark_method)
    def method(self: Any, *args: Any, **options: Any) -> Any:
        df = _written(self)
        if operator_names_below(df):
            _refuse_foreach_batch(self)
            _refuse_state_of_spark(df, _checkpoint_location(self, df, options))
        return spark_method(self, *args, **options)

    setattr(method, _MARK, True)
    return method


def _written(writer: Any) -> DataFrame:
    from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame

    return ConnectDataFrame(writer._write_stream._child, writer._session)


def _refuse_foreach_batch(writer: Any) -> None:
    if writer._write_proto.HasField("foreach_batch"):
        raise UnsupportedOperationError(
            "foreachBatch of Spark Connect cannot run behind an operator of cowstate: its actions "
            "do not know the batch that they belong to. Write the stream with a sink, such as "
            'writeStream.format("cowstate"), and read it with another query; or run the query in '
            "a session of classic Spark"
        )


def _checkpoint_location(writer: Any, df: DataFrame, options: dict[str, Any]) -> str | None:
    """Where a query keeps its checkpoint, as far as it is known before the start."""
    given = {name.lower(): value for name, value in writer._write_proto.options.items()}
    given |= {name.lower(): value for name, value in options.items()}
    if LOCATION.lower() in given:
        return str(given[LOCATION.lower()])
    root = df.sparkSession.conf.get(LOCATIONS_KEY, None)
    name = given.get("queryname") or writer._write_proto.query_name
    return f"{root}/{name}" if root and name else None


def _refuse_state_of_spark(df: DataFrame, location: str | None) -> None:
    if location is None:
        return
    reader = df.sparkSession.read.format("state-metadata")
    # An enabled session refuses to read operators of cowstate, which are no concern here.
    operators = unwrap(type(reader).load)(reader, location)
    names = [row["operatorName"] for row in operators.select("operatorName").collect()]
    if any(name.startswith(_STATE_OF_SPARK) for name in names):
        raise has_state_of_spark(location)
