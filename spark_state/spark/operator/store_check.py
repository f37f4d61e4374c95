"""Checks that stores can be kept at a URL, when a query is planned and not in its first batch."""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

from pyspark.sql import SparkSession

from checkpoint_store.errors import CheckpointStoreError
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from spark_state.spark.operator.connect_sessions import called_in_task, is_connect
from spark_state.spark.operator.operator_configuration import is_local_master
from spark_state.spark.operator.worker_loading import called_in_workers

_usable: set[tuple[str, str]] = set()


def check_store(spark: SparkSession, root: str, retry_seconds: float) -> None:
    """Write an object below `root` and delete it, once for an application.

    On a local master this process does it. On a cluster and with Spark Connect a task does it,
    because tasks will use the store.

    Raises StoreAccessError if the store cannot be used, and StoreUnavailableError if it does not
    answer for `retry_seconds`.
    """
    if is_connect(spark):
        store = str(spark.conf.get("spark.app.id")), root
        if store not in _usable:
            called_in_task(spark, _use, root, retry_seconds)
            _usable.add(store)
        return
    context = spark.sparkContext
    store = context.applicationId, root
    if store in _usable:
        return
    if is_local_master(context.master or ""):
        problem = _problem_of(root, retry_seconds)
    else:
        stores = context.parallelize([(root, retry_seconds)], 1)
        problem = stores.map(called_in_workers(_problem_of_store)).first()
    if problem is not None:
        raise problem
    _usable.add(store)


def _problem_of_store(store: tuple[str, float]) -> CheckpointStoreError | None:
    return _problem_of(*store)


def _problem_of(root: str, retry_seconds: float) -> CheckpointStoreError | None:
    """The error of using the store, None if there is none.

    The error is returned. If a task raised it, Spark would try the task again, and would add
    tracebacks of two languages.
    """
    try:
        _use(root, retry_seconds)
    except CheckpointStoreError as error:
        return error
    return None


def _use(root: str, retry_seconds: float) -> None:
    name = f"usable-{uuid4().hex}"
    store = RetryingObjectStore(open_object_store(root), retry_seconds)
    store.put(name, b"")
    with suppress(CheckpointStoreError):  # queries can run without the right to delete
        store.delete([name])
