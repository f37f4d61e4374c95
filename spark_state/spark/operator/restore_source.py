"""Finds what a new query begins with: `spark.cowstate.restoreFrom`, when an operator is planned.

The epoch is chosen once, on the driver, so that all subtasks begin with the same one while the
other query may go on. It counts only while the operator's own store has no epoch.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from checkpoint_store import object_names
from checkpoint_store.errors import CheckpointStoreError, ObjectMissingError
from checkpoint_store.files.document import Source
from checkpoint_store.files.schema_columns import are_same_types
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.operators.checkpoint_codec import decode_metadata
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.operators.store_metadata import StoreMetadata
from checkpoint_store.schema_text import schema_text
from spark_state.errors import ConfigurationError
from spark_state.host.epoch_request import RestoreSource
from spark_state.spark.operator.connect_sessions import called_in_task, is_connect
from spark_state.spark.operator.operator_configuration import (
    PREFIX,
    RESTORE_KEY,
    OperatorConfiguration,
    RestoreFrom,
)


def restore_source(
    spark: SparkSession, configuration: OperatorConfiguration, operator: str, key_schema_json: str
) -> RestoreSource | None:
    """The store and the epoch that an operator of this name begins with; None if none is set.

    With Spark Connect a task looks into the store. Raises ConfigurationError if there is no such
    store or epoch, or if it is of another key or another number of key groups.
    """
    chosen = configuration.restore_from
    if chosen is None:
        return None
    asked = chosen, configuration, operator, key_schema_json
    if is_connect(spark):
        return RestoreSource(*called_in_task(spark, _chosen_epoch, *asked))
    return RestoreSource(*_chosen_epoch(*asked))


def _chosen_epoch(
    chosen: RestoreFrom, configuration: OperatorConfiguration, operator: str, key_schema_json: str
) -> tuple[str, int]:
    """The URL of a store, and the epoch."""
    store, metadata = _store(chosen, operator, configuration.store_retry_seconds)
    _check_same(store.url, metadata, configuration, key_schema_json)
    before = 2**63 - 1 if chosen.epoch is None else chosen.epoch + 1
    try:
        checkpoint = CompletedCheckpointStore(store).latest_before(before)
    except CheckpointStoreError as error:
        raise ConfigurationError(f"{RESTORE_KEY} is {chosen.url!r}: {error}") from error
    if checkpoint is None or (chosen.epoch is not None and checkpoint.epoch != chosen.epoch):
        there = "no epoch" if checkpoint is None else f"epoch {checkpoint.epoch} before it"
        raise ConfigurationError(
            f"{RESTORE_KEY}: {store.url} does not have "
            f"{'any epoch' if chosen.epoch is None else f'epoch {chosen.epoch}'}, but {there}. "
            "Name one that it has, or leave @epoch out for the newest"
        )
    return store.url, checkpoint.epoch


def _store(
    chosen: RestoreFrom, operator: str, retry_seconds: float
) -> tuple[RetryingObjectStore, StoreMetadata]:
    for url in (chosen.url, f"{chosen.url.rstrip('/')}/{operator}"):
        store = RetryingObjectStore(open_object_store(url), retry_seconds)
        try:
            data = store.get(object_names.STORE)
        except ObjectMissingError:
            continue
        return store, decode_metadata(data, Source(store.url, object_names.STORE))
    raise ConfigurationError(
        f"{RESTORE_KEY} is {chosen.url!r}, but neither this nor {operator} below it is the store "
        "of an operator: set it to <spark.cowstate.store>/<query id>, or to "
        "<spark.cowstate.store>/<query id>/<operator>"
    )


def _check_same(
    url: str, metadata: StoreMetadata, configuration: OperatorConfiguration, key_schema_json: str
) -> None:
    if metadata.max_parallelism != configuration.max_parallelism:
        raise ConfigurationError(
            f"{RESTORE_KEY}: {url} has {metadata.max_parallelism} key groups, and "
            f"{PREFIX}maxParallelism is {configuration.max_parallelism}: set it to "
            f"{metadata.max_parallelism}"
        )
    if not are_same_types(metadata.key_schema_json, key_schema_json):
        raise ConfigurationError(
            f"{RESTORE_KEY}: {url} has the key ({schema_text(metadata.key_schema_json)}), and the "
            f"operator the key ({schema_text(key_schema_json)}): group by the same columns"
        )
