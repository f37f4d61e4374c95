"""Spark's state formats, `statestore` and `state-metadata`, whose reads may mean cowstate.

PySpark has a class of readers for classic Spark and one for Spark Connect. Both read with the
method `load`, which is replaced here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from pyspark.sql import DataFrame

STATE, METADATA = "statestore", "state-metadata"
_MARK = "_cowstate_answers"

Answer = Callable[[Any, Any, Callable[[], DataFrame]], DataFrame]
"""Gets a reader that has its format and its options, the path or None, and Spark's own read."""


def answer_loads(readers: Any, answer: Answer) -> None:
    """Let later reads by this class of readers give what `answer` gives. May be called again."""
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
