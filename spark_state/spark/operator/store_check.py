"""Whether stores can be kept at a URL, asked when a query is planned, not in its first batch."""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

from pyspark.sql import SparkSession

from checkpoint_store.errors import CheckpointStoreError
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from spark_state.spark.operator.operator_configuration import is_local_master
from spark_state.spark.operator.worker_loading import called_in_workers

_usable: set[tuple[str, str]] = set()


def check_store(spark: SparkSession, root: str, retry_seconds: float) -> None:
    """Write an object below `root` and delete it, once for an application.

    Whoever will use the store does it: this process on a local master, a task on a cluster. Raises
    StoreAccessError when the store cannot be used, StoreUnavailableError when it does not answer
    for `retry_seconds`.
    """
    context = spark.sparkContext
    asked = context.applicationId, root
    if asked in _usable:
        return
    if is_local_master(context.master or ""):
        problem = _problem_of(root, retry_seconds)
    else:
        asking = context.parallelize([(root, retry_seconds)], 1)
        problem = asking.map(called_in_workers(_problem_of_store)).first()
    if problem is not None:
        raise problem
    _usable.add(asked)


def _problem_of_store(store: tuple[str, float]) -> CheckpointStoreError | None:
    return _problem_of(*store)


def _problem_of(root: str, retry_seconds: float) -> CheckpointStoreError | None:
    """What using the store raises. It is returned: a task that raises it is tried again, and its
    error comes with the traces of two languages."""
    name = f"usable-{uuid4().hex}"
    try:
        store = RetryingObjectStore(open_object_store(root), retry_seconds)
        store.put(name, b"")
    except CheckpointStoreError as error:
        return error
    with suppress(CheckpointStoreError):  # who may not delete may still run queries
        store.delete([name])
    return None
