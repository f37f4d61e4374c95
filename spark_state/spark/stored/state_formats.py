"""Replaces the reads of Spark's state formats, `statestore` and `state-metadata`.

PySpark has a class of readers for classic Spark and a class for Spark Connect. Both classes read
with the method `load`, which this module replaces.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from pyspark.sql import DataFrame

from spark_state.spark.session.replaced_methods import replace_once

STATE, METADATA = "statestore", "state-metadata"
_MARK = "_cowstate_answers"

Answer = Callable[[Any, Any, Callable[[], DataFrame]], DataFrame]
"""Gets a reader with its format and options, the path or None, and Spark's own read."""


def answer_loads(readers: Any, answer: Answer) -> None:
    """Replace `load` of a class of readers: later calls return the result of `answer`. Safe to call
    again."""
    replace_once(readers, "load", _MARK, partial(_answering, answer))


def _answering(answer: Answer, spark_load: Any) -> Any:
    @wraps(spark_load)
    def load(
        self: Any, path: Any = None, format: str | None = None, schema: Any = None, **options: Any
    ) -> DataFrame:
        if format is not None:
            self.format(format)
        self.options(**options)
        return answer(self, path, lambda: spark_load(self, path, schema=schema))

    return load
