"""Replaces the reads of Spark's state formats, `statestore` and `state-metadata`.

PySpark has a class of readers for classic Spark and a class for Spark Connect. Both classes read
with the method `load`, which this module replaces.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from pyspark.sql import DataFrame

STATE, METADATA = "statestore", "state-metadata"
_MARK = "_cowstate_answers"

Answer = Callable[[Any, Any, Callable[[], DataFrame]], DataFrame]
"""Gets a reader with its format and options, the path or None, and Spark's own read."""


def answer_loads(readers: Any, answer: Answer) -> None:
    """Let later reads by this class of readers return the result of `answer`. Safe to call
    again."""
    spark_load: Any = readers.load
    if hasattr(spark_load, _MARK):
        return

    @wraps(spark_load)
    def load(
        self: Any, path: Any = None, format: str | None = None, schema: Any = None, **options: Any
    ) -> DataFrame:
        if format is not None:
            self.format(format)
        self.options(**options)
        return answer(self, path, lambda: spark_load(self, path, schema=schema))

    setattr(load, _MARK, True)
    readers.load = load
