"""Refuses to start a query whose checkpoint has the state of Spark's own transformWithState.

Spark refuses it too, in the first batch, but its error says nothing of the way out. So the methods
that start queries look into the checkpoint before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_state.errors import ConfigurationError
from spark_state.spark.operator.operator_configuration import STORE_KEY
from spark_state.spark.operator.planned_operators import operators_in

LOCATION = "checkpointLocation"
LOCATIONS_KEY = "spark.sql.streaming.checkpointLocation"
_MARK = "_cowstate_looks_for_state_of_spark"
_OPERATOR = re.compile(r'"operatorName"\s*:\s*"transformWithState')


def refuse_state_of_spark() -> None:
    """Let later starts of queries of this process look for state of Spark's. May be called
    again."""
    for name in ("start", "toTable"):
        method = getattr(DataStreamWriter, name)
        if not hasattr(method, _MARK):
            setattr(DataStreamWriter, name, _replacement(method))


def _replacement(spark_method: Callable[..., StreamingQuery]) -> Callable[..., StreamingQuery]:
    @wraps(spark_method)
    def method(self: DataStreamWriter, *args: Any, **options: Any) -> StreamingQuery:
        if operators_in(self._df._jdf.queryExecution().analyzed()):
            location = _checkpoint_location(self, options)
            if location is not None:
                _check(self, location)
        return spark_method(self, *args, **options)

    setattr(method, _MARK, True)
    return method


def _checkpoint_location(writer: DataStreamWriter, options: Mapping[str, Any]) -> str | None:
    """Where a query keeps its checkpoint, as far as it is known before the start."""
    given = {name.lower(): value for name, value in options.items()}
    if LOCATION.lower() in given:
        return str(given[LOCATION.lower()])
    set_before = writer._jwrite.extraOptions().get(LOCATION.lower())
    if set_before.isDefined():
        return str(set_before.get())
    root = writer._spark.conf.get(LOCATIONS_KEY, None)
    name = given.get("queryname") or _query_name(writer)
    return f"{root}/{name}" if root and name else None


def _query_name(writer: DataStreamWriter) -> str | None:
    name = writer._jwrite.extraOptions().get("queryname")
    return str(name.get()) if name.isDefined() else None


def _check(writer: DataStreamWriter, location: str) -> None:
    spark = writer._spark
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
