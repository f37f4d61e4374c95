"""Checks queries of Spark Connect with operators of cowstate before the server starts the queries,
and notes the operators of all started queries.

A query with `foreachBatch` is refused (I5). Its function runs in a process of the server and sends
requests as a client does, so the tasks of its actions do not know the query. And if the function
runs only some partitions of a batch, no code runs the missing partitions. All other sinks run every
partition of a batch.

A checkpoint is on the server, so Spark's own reader on the server lists the operators with state in
the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import unwrap
from typing import Any

from pyspark.sql import DataFrame

from spark_state.errors import UnsupportedOperationError
from spark_state.spark.queries.adaptive_plans import turn_adaptive_plans_off
from spark_state.spark.queries.connect_runs import note_connect_run, stored_query
from spark_state.spark.queries.connect_starts import (
    forget_connect_starts,
    name_connect_starts,
)
from spark_state.spark.queries.query_starts import (
    LOCATIONS_KEY,
    check_starts,
    checkpoint_location,
    has_state_of_spark,
    refuse_async_progress,
)
from spark_state.spark.queries.restore_source import check_one_epoch
from spark_state.spark.session.planned_operators import (
    restore_sources_below,
    roots_of_connect_operators,
)

_STATE_OF_SPARK = "transformWithState"


def check_connect_queries() -> None:
    """Check later starts of queries of Spark Connect in this process. Safe to call again."""
    from pyspark.sql.connect.streaming.readwriter import DataStreamWriter

    check_starts(DataStreamWriter, _check)


def _check(writer: Any, options: Mapping[str, Any]) -> Callable[[Any | None], None]:
    df, written = written_frame(writer), writer._write_proto
    stores = stored_query(df.sparkSession, "")
    operators = roots_of_connect_operators(df, stores.root)
    stored = replace(stores, roots=operators)
    restore_adaptive_plans: Callable[[], None] | None = None
    if operators:
        _refuse_foreach_batch(writer)
        check_one_epoch(restore_sources_below(df))
        locations = df.sparkSession.conf.get(LOCATIONS_KEY, None)
        given = {**written.options, **options}
        refuse_async_progress(given)
        location = checkpoint_location(given, locations, written.query_name)
        _refuse_state_of_spark(df, location)
        name_connect_starts(df.sparkSession, location, stored)
        restore_adaptive_plans = turn_adaptive_plans_off(df.sparkSession)

    def note(query: Any | None) -> None:
        if restore_adaptive_plans is not None:
            restore_adaptive_plans()
        if query is not None:
            note_connect_run(query, stores=stored)
        if operators:
            forget_connect_starts(df.sparkSession)

    return note


def written_frame(writer: Any) -> DataFrame:
    """The DataFrame of a writer of Spark Connect."""
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


def _refuse_state_of_spark(df: DataFrame, location: str | None) -> None:
    if location is None:
        return
    reader = df.sparkSession.read.format("state-metadata")
    # Use Spark's own load: in an enabled session the replaced load refuses operators of cowstate.
    operators = unwrap(type(reader).load)(reader, location)
    names = [row["operatorName"] for row in operators.select("operatorName").collect()]
    if any(name.startswith(_STATE_OF_SPARK) for name in names):
        raise has_state_of_spark(location)
