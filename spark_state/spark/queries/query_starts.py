"""Runs checks before a query starts, and callbacks after the start. Finds the checkpoint's
location.

PySpark has a class of writers for classic Spark and a class for Spark Connect. Both classes start a
query with the methods `start` and `toTable`. This module replaces both methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, wraps
from inspect import signature
from typing import Any

from spark_state.errors import ConfigurationError
from spark_state.spark.session.replaced_methods import replace_once

LOCATIONS_KEY = "spark.sql.streaming.checkpointLocation"
CHECKED_OPTIONS = _LOCATION, _QUERY_NAME, _ASYNC = (
    "checkpointlocation",
    "queryname",
    "asyncprogresstrackingenabled",
)
_MARK = "_cowstate_checks"

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
    """Raise ConfigurationError if Spark would plan a batch before the commit of the batch before:
    an epoch is built only upon a committed epoch (I4). `options`: see checkpoint_location."""
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
