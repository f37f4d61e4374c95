"""Starts Spark's own transformWithState on RocksDB, in sessions whose provider is cowstate's.

Spark runs its operator only on RocksDB, and takes the provider of a new query from the session. So
this module sets RocksDB in the session's configuration for the start of a query with the operator,
and resets the configuration right after the start. RocksDB then holds all states of the query.
`configure` applies the patch.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_state.errors import ConfigurationError
from spark_state.spark.provider.provider_class import (
    PROVIDER_CLASS,
    PROVIDER_KEY,
    ROCKSDB_CLASS,
    short_name,
)
from spark_state.spark.queries.connect_queries import written_frame
from spark_state.spark.session.connect_plans import plan_nodes
from spark_state.spark.session.connect_sessions import is_connect
from spark_state.spark.session.logical_plans import analyzed_plan, nodes_of
from spark_state.spark.session.replaced_methods import replace_once
from spark_state.spark.session.session_facts import changed_setting

_OPERATORS = ("TransformWithState", "TransformWithStateInPySpark")
_MARK = "_cowstate_starts_on_rocksdb"
_PATIENCE_SECONDS = 600.0


class QueryStarts:
    """Starts of queries of this process. A start with a changed provider runs alone: a start at the
    same time would use the changed provider, too.

    A wait for other starts ends with ConfigurationError after `_PATIENCE_SECONDS`: a listener that
    starts a query inside onQueryStarted may wait for itself.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._alone = False

    @contextmanager
    def start(self, *, alone: bool) -> Iterator[None]:
        with self._changed:
            if not self._changed.wait_for(
                lambda: not self._alone and not (alone and self._running), _PATIENCE_SECONDS
            ):
                raise ConfigurationError(
                    f"other queries of this process are starting for {_PATIENCE_SECONDS:g} s. "
                    "Start queries with Spark's transformWithState outside of onQueryStarted of "
                    f"listeners, or set {PROVIDER_KEY} to {ROCKSDB_CLASS} for them"
                )
            self._running += 1
            self._alone = alone
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._alone = False
                self._changed.notify_all()


_starts = QueryStarts()


def start_transforms_on_rocksdb(writers: Any = DataStreamWriter) -> None:
    """Let later queries with Spark's transformWithState start on RocksDB, in this process.
    `writers`: the class of writers; Spark Connect has its own class. Safe to call again."""
    for name in ("start", "toTable"):
        replace_once(writers, name, _MARK, _starting)


def _starting(spark_method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(spark_method)
    def method(self: Any, *args: Any, **options: Any) -> Any:
        df: DataFrame = written_frame(self) if hasattr(self, "_write_proto") else self._df
        spark = df.sparkSession
        if spark.conf.get(PROVIDER_KEY, None) != PROVIDER_CLASS or not _has_transform(df):
            with _starts.start(alone=False):
                return spark_method(self, *args, **options)
        warnings.warn(
            "this query has Spark's own transformWithState, which runs on RocksDB only: a new "
            f"query starts with {short_name(ROCKSDB_CLASS)}. To run it on cowstate, call "
            "spark_state.enable(spark) before transformWithState",
            stacklevel=2,
        )
        with _starts.start(alone=True), changed_setting(spark, PROVIDER_KEY, ROCKSDB_CLASS):
            return spark_method(self, *args, **options)

    return method


def _has_transform(df: DataFrame) -> bool:
    if is_connect(df.sparkSession):
        return any(node.name in _OPERATORS for node in plan_nodes(df))
    return any(node.nodeName() in _OPERATORS for node in nodes_of(analyzed_plan(df)))
