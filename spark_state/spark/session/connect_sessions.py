"""Spark Connect: which sessions are its sessions, and calls in a task of their server.

The client of Spark Connect has no JVM, and may be on another machine than the server. So what needs
the server's files, network or interpreter runs in a task. PySpark's client needs packages of the
extra `connect`, so its modules are imported only for a session that is already there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import GroupedData, SparkSession

import checkpoint_store.errors
import checkpoint_store.operators.operator_errors
import checkpoint_store.operators.run_errors
import spark_state.errors
import spark_state.processor.condition_errors
from checkpoint_store.errors import CowstateError
from spark_state.spark.session.worker_loading import called_in_workers

_SESSION, _GROUP = "pyspark.sql.connect.session", "pyspark.sql.connect.group"
_QUERY = "pyspark.sql.connect.streaming.query"
_ERRORS = (
    checkpoint_store.errors,
    checkpoint_store.operators.operator_errors,
    checkpoint_store.operators.run_errors,
    spark_state.errors,
    spark_state.processor.condition_errors,
)


def is_connect(spark: object) -> bool:
    """Whether this is a session of Spark Connect."""
    return _is_a(spark, _SESSION, "SparkSession")


def is_session(spark: object) -> bool:
    """Whether this is a session, of classic Spark or of Spark Connect."""
    return isinstance(spark, SparkSession) or is_connect(spark)


def is_grouped(value: object) -> bool:
    """Whether this is a result of `df.groupBy(…)`, in a session of either kind."""
    return isinstance(value, GroupedData) or _is_a(value, _GROUP, "GroupedData")


def is_connect_query(value: object) -> bool:
    """Whether this is a query of Spark Connect."""
    return _is_a(value, _QUERY, "StreamingQuery")


def _is_a(value: object, module: str, name: str) -> bool:
    # An object of the class can only be there if its module is.
    imported = sys.modules.get(module)
    return imported is not None and isinstance(value, getattr(imported, name))


def called_in_task(spark: SparkSession, function: Callable[..., Any], *arguments: Any) -> Any:
    """What `function` returns in a task of the server. It comes as JSON, because a client should
    not load pickles that a server sends.

    Raises what `value_of` raises.
    """

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"answer": [answer_of(function, arguments)]})

    one_task = spark.range(0, 1, 1, 1)
    (row,) = one_task.mapInArrow(called_in_workers(answer), "answer string").collect()
    return value_of(row["answer"])


def answer_of(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """What `function` returns or, if it raises a CowstateError, that error, as JSON."""
    try:
        return json.dumps({"value": function(*arguments)})
    except CowstateError as error:
        told = {"error": type(error).__name__, "values": error.args, "message": str(error)}
        return json.dumps(told)


def value_of(answer: str) -> Any:
    """What `answer_of` has written, as the client takes it.

    Raises the error that was written, or a CowstateError with its name and its message if this
    client has no such error: the server chooses the name, so it may name nothing else to call.
    """
    told = json.loads(answer)
    if "error" not in told:
        return told["value"]
    kind = _error_class(told["error"])
    if kind is None:
        raise CowstateError(f"{told['error']}: {told['message']}")
    raise kind(*told["values"])


def _error_class(name: str) -> type[CowstateError] | None:
    for module in _ERRORS:
        kind = getattr(module, name, None)
        if isinstance(kind, type) and issubclass(kind, CowstateError):
            return kind
    return None
