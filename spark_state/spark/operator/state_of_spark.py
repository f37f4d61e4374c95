"""Refuses to start a query whose checkpoint has the state of Spark's own transformWithState.

Spark refuses it too, in the first batch, but its error says nothing of the way out. So the methods
that start queries look into the checkpoint before. They also tell of runs that have ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_state.errors import ConfigurationError
from spark_state.spark.operator.ended_runs import name_ended_runs, note_started
from spark_state.spark.operator.logical_plans import analyzed_plan
from spark_state.spark.operator.operator_configuration import STORE_KEY
from spark_state.spark.operator.planned_operators import operators_in
from spark_state.spark.operator.query_starts import (
    LOCATION_OPTIONS,
    LOCATIONS_KEY,
    check_starts,
    checkpoint_location,
)
from spark_state.spark.operator.restore_source import check_one_epoch

_OPERATOR = re.compile(r'"operatorName"\s*:\s*"transformWithState')


def refuse_state_of_spark() -> None:
    """Let later starts of queries of this process look for state of Spark's. May be called
    again."""
    check_starts(DataStreamWriter, _check)


def _check(
    writer: DataStreamWriter, options: Mapping[str, Any]
) -> Callable[[StreamingQuery], None] | None:
    operators = operators_in(analyzed_plan(writer._df))
    if not operators:
        return None
    check_one_epoch((planned.operator, planned.restore_from) for planned in operators)
    root = writer._spark.conf.get(LOCATIONS_KEY, None)
    given = {**_options_before(writer), **options}
    location = checkpoint_location(given, root, name=None)
    if location is not None:
        _refuse_state_at(location, writer._spark)
    name_ended_runs(writer._spark.sparkContext)
    return note_started


def _options_before(writer: DataStreamWriter) -> dict[str, str]:
    values = {name: writer._jwrite.extraOptions().get(name) for name in LOCATION_OPTIONS}
    return {name: value.get() for name, value in values.items() if value.isDefined()}


def _refuse_state_at(location: str, spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(location)
    files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    for operator in _listed(files, jvm.org.apache.hadoop.fs.Path(path, "state")):
        for metadata in _listed(files, jvm.org.apache.hadoop.fs.Path(operator, "_metadata/v2")):
            if _OPERATOR.search(_text(jvm, files, metadata)):
                raise has_state_of_spark(location)


def has_state_of_spark(location: str) -> ConfigurationError:
    """The error of a checkpoint at `location`."""
    return ConfigurationError(
        f"{location} has the state of Spark's own transformWithState, which the operator on "
        f"cowstate would not see. Take it over: cowstate adopt {location} --apply --conf "
        f"{STORE_KEY}=…; or start the query with a new checkpoint"
    )


def _listed(files: Any, folder: Any) -> list[Any]:
    """The paths of what is in a folder; nothing if it does not exist."""
    if not files.exists(folder):
        return []
    return [entry.getPath() for entry in files.listStatus(folder)]


def _text(jvm: Any, files: Any, path: Any) -> str:
    stream = files.open(path)
    try:
        return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
    finally:
        stream.close()
