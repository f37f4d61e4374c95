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
import spark_state.errors
from checkpoint_store.errors import CowstateError
from spark_state.spark.operator.worker_loading import called_in_workers

_SESSION, _GROUP = "pyspark.sql.connect.session", "pyspark.sql.connect.group"


def is_connect(spark: object) -> bool:
    """Whether this is a session of Spark Connect."""
    return _is_a(spark, _SESSION, "SparkSession")


def is_session(spark: object) -> bool:
    """Whether this is a session, of classic Spark or of Spark Connect."""
    return isinstance(spark, SparkSession) or is_connect(spark)


def is_grouped(value: object) -> bool:
    """Whether this is a result of `df.groupBy(…)`, in a session of either kind."""
    return isinstance(value, GroupedData) or _is_a(value, _GROUP, "GroupedData")


def _is_a(value: object, module: str, name: str) -> bool:
    # An object of the class can only be there if its module is.
    imported = sys.modules.get(module)
    return imported is not None and isinstance(value, getattr(imported, name))


def called_in_task(spark: SparkSession, function: Callable[..., Any], *arguments: Any) -> Any:
    """What `function` returns in a task of the server. It comes as JSON, because a client should
    not load pickles that a server sends.

    Raises what `function` raises, if that is a CowstateError.
    """

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"answer": [_answer(function, arguments)]})

    one_task = spark.range(0, 1, 1, 1)
    (row,) = one_task.mapInArrow(called_in_workers(answer), "answer string").collect()
    told = json.loads(row["answer"])
    if "error" in told:
        raise _error(told["error"], told["values"])
    return told["value"]


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    try:
        return json.dumps({"value": function(*arguments)})
    except CowstateError as error:
        return json.dumps({"error": type(error).__name__, "values": error.args})


def _error(name: str, values: list[Any]) -> CowstateError:
    kind = getattr(checkpoint_store.errors, name, None) or getattr(spark_state.errors, name)
    error: CowstateError = kind(*values)
    return error
