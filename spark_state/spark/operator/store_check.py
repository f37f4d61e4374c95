"""Checks that a URL can hold stores, when a query is planned and not in its first batch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from checkpoint_store.errors import CheckpointStoreError
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from spark_state.host.shared_mounts import check_mount
from spark_state.spark.session.connect_sessions import called_near_stores, is_local
from spark_state.spark.session.operator_configuration import OperatorConfiguration

_usable: set[tuple[str, str]] = set()


def check_store(spark: SparkSession, configuration: OperatorConfiguration) -> None:
    """Write an object below the root of the stores and delete the object, once for an application.

    On a local master the driver does this. On a cluster and with Spark Connect a task does this,
    because tasks will use the store.

    Raises StoreAccessError if the store cannot be used, or if the store is in a directory that
    tasks on other machines do not share, and StoreUnavailableError if the store does not answer
    during the time of retries.
    """
    root, settings = configuration.store_root, configuration.checkpoints
    store = str(spark.conf.get("spark.app.id")), root
    if store in _usable:
        return
    shared = not is_local(spark)
    called_near_stores(
        spark, _use, root, settings.store_retry_seconds, settings.store_options, shared
    )
    _usable.add(store)


def _use(root: str, retry_seconds: float, options: Mapping[str, Any], shared: bool) -> None:
    if shared:
        check_mount(root)
    name = f"usable-{uuid4().hex}"
    store = RetryingObjectStore(open_object_store(root, options), retry_seconds)
    store.put(name, b"")
    with suppress(CheckpointStoreError):  # queries can run without the right to delete
        store.delete([name])
