"""Runs checks before a query starts, and callbacks after the start. Finds the checkpoint's
location, and refuses a checkpoint with the state of Spark's own transformWithState: Spark refuses
such a checkpoint, too, but only in the first batch, and with an error that names no way out.

PySpark has a class of writers for classic Spark and a class for Spark Connect. Both classes start a
query with the methods `start` and `toTable`. This module replaces both methods.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial, wraps
from inspect import signature
from typing import Any

from pyspark.sql import SparkSession

from checkpoint_store.files.document import Source
from checkpoint_store.provider.spark_log_entry import newest_version_folder
from spark_state.errors import ConfigurationError
from spark_state.spark.session.hadoop_files import HadoopFiles
from spark_state.spark.session.operator_configuration import STORE_KEY
from spark_state.spark.session.replaced_methods import replace_once

LOCATIONS_KEY = "spark.sql.streaming.checkpointLocation"
CHECKED_OPTIONS = _LOCATION, _QUERY_NAME, _ASYNC = (
    "checkpointlocation",
    "queryname",
    "asyncprogresstrackingenabled",
)
_MARK = "_cowstate_checks"
_OPERATOR = re.compile(r'"operatorName"\s*:\s*"transformWithState')

StartCheck = Callable[[Any, Mapping[str, Any]], Callable[[Any | None], None] | None]
"""Gets a writer, and the arguments and options of the call by name. Raises to refuse the start. The
returned function is called with the started query, or with None if Spark did not start the query.
The returned function must not raise: the query runs."""


def check_starts(writers: Any, check: StartCheck) -> None:
    """Let later starts of queries by this class of writers call `check` first. Safe to call
    again."""
    for name in ("start", "toTable"):
        replace_once(writers, name, _MARK, partial(_checked, check=check))


def _checked(spark_method: Callable[..., Any], check: StartCheck) -> Callable[..., Any]:
    _, *names = signature(spark_method).parameters

    @wraps(spark_method)
    def method(self: Any, *args: Any, **options: Any) -> Any:
        note = check(self, {**dict(zip(names, args, strict=False)), **options})
        query = None
        try:
            query = spark_method(self, *args, **options)
        finally:
            if note is not None:
                note(query)
        return query

    return method


def refuse_async_progress(options: Mapping[str, Any]) -> None:
    """Raise ConfigurationError if Spark would plan a batch before it has committed the preceding
    batch: an epoch is built only upon a committed epoch (I4). `options`: see
    checkpoint_location."""
    given = {key.lower(): str(value) for key, value in options.items()}
    if given.get(_ASYNC, "false").strip().lower() == "true":
        raise ConfigurationError(
            "asyncProgressTrackingEnabled is true: Spark would run a batch before it has committed "
            "the batch before, and nobody could tell which state counts; remove this option of "
            "writeStream"
        )


def checkpoint_location(
    options: Mapping[str, Any], root: str | None, name: str | None
) -> str | None:
    """The location of a query's checkpoint; None if unknown before the start. `options`: the
    writer's options, in upper or lower case; the last of equal names counts; `root`: the session's
    value of LOCATIONS_KEY; `name`: the name of the query, unless an option has the name."""
    given = {key.lower(): str(value) for key, value in options.items() if value is not None}
    if _LOCATION in given:
        return given[_LOCATION]
    query = given.get(_QUERY_NAME) or name
    return f"{root}/{query}" if root and query else None


def refuse_state_of_spark(location: str, spark: SparkSession) -> None:
    """Raise ConfigurationError if the checkpoint at `location` has state of Spark's own operator,
    and UnsupportedFormatError if a later version of Spark wrote an operator's metadata."""
    files = HadoopFiles(spark, location)
    for operator in files.names("state"):
        noted = f"state/{operator}/_metadata"
        newest_version_folder(files.names(noted), Source(location, noted))
        for name in files.names(f"{noted}/v2"):
            if _OPERATOR.search(files.text(f"{noted}/v2/{name}") or ""):
                raise has_state_of_spark(location)


def has_state_of_spark(location: str) -> ConfigurationError:
    """The error for a checkpoint at `location` with state of Spark's own operator."""
    return ConfigurationError(
        f"{location} has the state of Spark's own transformWithState, which the operator on "
        f"cowstate would not see. Take it over: cowstate adopt {location} --apply --conf "
        f"{STORE_KEY}=…; or start the query with a new checkpoint"
    )
