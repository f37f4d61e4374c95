"""Spark Connect: recognizes its sessions, and calls functions in a task of the server. Clusters of
classic Spark use the same tasks, because perhaps only executors reach the stores.

The client of Spark Connect has no JVM, and may be on another machine than the server. So code that
needs the server's files, network or interpreter runs in a task. PySpark's client needs packages of
the extra `connect`, so its modules are imported only for a session that already exists.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import GroupedData, SparkSession

from checkpoint_store.errors import CowstateError
from spark_state.spark.session.operator_configuration import is_local_master
from spark_state.spark.session.worker_loading import called_in_workers

_SESSION, _GROUP = "pyspark.sql.connect.session", "pyspark.sql.connect.group"
_QUERY = "pyspark.sql.connect.streaming.query"


def is_connect(spark: object) -> bool:
    """Return True for a session of Spark Connect."""
    return _is_a(spark, _SESSION, "SparkSession")


def is_local(spark: SparkSession) -> bool:
    """Return True if Spark runs on the machine of this process, without Spark Connect."""
    return not is_connect(spark) and is_local_master(spark.sparkContext.master or "")


def is_session(spark: object) -> bool:
    """Return True for a session, of classic Spark or of Spark Connect."""
    return isinstance(spark, SparkSession) or is_connect(spark)


def is_grouped(value: object) -> bool:
    """Return True for a result of `df.groupBy(…)`, in a session of either kind."""
    return isinstance(value, GroupedData) or _is_a(value, _GROUP, "GroupedData")


def is_connect_query(value: object) -> bool:
    """Return True for a query of Spark Connect."""
    return _is_a(value, _QUERY, "StreamingQuery")


def _is_a(value: object, module: str, name: str) -> bool:
    # An object of the class can exist only if the class's module is imported.
    imported = sys.modules.get(module)
    return imported is not None and isinstance(value, getattr(imported, name))


def called_near_stores(spark: SparkSession, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call `function` where the stores are within reach: in this process if `is_local(spark)`,
    otherwise in a task. Raises the errors of `function`."""
    return function(*arguments) if is_local(spark) else called_in_task(spark, function, *arguments)


def called_in_task(spark: SparkSession, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call `function` in a task, and return the result. The result comes as JSON, because a client
    should not load pickles from a server. Raises the errors of `value_of`."""

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"answer": [answer_of(function, arguments)]})

    one_task = spark.range(0, 1, 1, 1)
    (row,) = one_task.mapInArrow(called_in_workers(answer), "answer string").collect()
    return value_of(row["answer"])


def answer_of(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """The result of `function` as JSON or, if `function` raises a CowstateError, the error as
    JSON."""
    try:
        return json.dumps({"value": function(*arguments)})
    except CowstateError as error:
        told = {"error": type(error).__name__, "values": error.args, "message": str(error)}
        return json.dumps(told)


def value_of(answer: str) -> Any:
    """The value in the JSON that `answer_of` wrote. If the JSON has an error, raises the error. An
    error whose class this client has not loaded becomes a CowstateError with the name of the class
    and the message. The server chooses the name, so only error classes of cowstate are called."""
    told = json.loads(answer)
    if "error" not in told:
        return told["value"]
    for kind in _with_subclasses(CowstateError):
        if kind.__name__ == told["error"]:
            raise kind(*told["values"])
    raise CowstateError(f"{told['error']}: {told['message']}")


def _with_subclasses(kind: type[CowstateError]) -> Iterator[type[CowstateError]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _with_subclasses(subclass)
