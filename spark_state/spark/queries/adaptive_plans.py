"""Lets Spark run the batches of a query in one job each.

With adaptive execution, Spark runs each shuffle as a job of its own, to plan the rest of the batch
by the sizes of the shuffle's output. The number of subtasks of an operator is fixed, so the sizes
change nothing for the operator, and each further job takes time. Spark turns adaptive
execution off for queries with Spark's own state, and takes a query of cowstate for a query without
state.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

ADAPTIVE_KEY = "spark.sql.adaptive.streaming.stateless.enabled"


def turn_adaptive_plans_off(spark: SparkSession) -> Callable[[], None]:
    """Turn adaptive execution off for the next query that starts in a session, unless the session
    sets ADAPTIVE_KEY itself. Spark copies the session's settings when the query starts. So call the
    returned function after the start: it removes the setting again.

    Other queries may be affected: a query without operators that another thread of the session
    starts meanwhile; and later queries, if a server of Spark Connect does not answer the returned
    function."""
    if spark.conf.get(ADAPTIVE_KEY, None) is not None:
        return lambda: None
    spark.conf.set(ADAPTIVE_KEY, "false")

    def restore() -> None:
        with suppress(PySparkException):
            spark.conf.unset(ADAPTIVE_KEY)

    return restore
