"""The stores of the operators of a query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkpoint_store.errors import CheckpointStoreError, NotAStoreError
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.open_history import open_history
from checkpoint_store.operators.operator_errors import (
    NoOperatorStoreError,
    NotAnOperatorError,
)
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.operators.operator_order import operator_order
from checkpoint_store.provider.provider_errors import StoreNotFoundError
from checkpoint_store.provider.provider_history import ProviderHistory
from checkpoint_store.provider.spark_checkpoint import query_id_of


def operators_at(
    url: str,
    storage_options: Mapping[str, Any] | None,
    retry_seconds: float,
    other: type[NotAnOperatorError] = NotAnOperatorError,
) -> list[OperatorHistory]:
    """Open the operator whose store is at `url`, or all operators of the query whose directory is
    at `url`. Operators are ordered by name; numbers in names count as numbers.

    Raises NotAStoreError if there is no store, and an error of the class `other` if `url` is a
    table or a query's checkpoint; CorruptObjectError; the errors of the object store.
    """

    def opened(of_url: str) -> OperatorHistory:
        try:
            history = open_history(of_url, storage_options, None, retry_seconds)
        except StoreNotFoundError as error:
            raise other(error.url, query_id()) from error
        if isinstance(history, OperatorHistory):
            return history
        is_checkpoint = isinstance(history, ProviderHistory)
        raise other(history.url, query_id() if is_checkpoint else None)

    def query_id() -> str | None:
        store = RetryingObjectStore(open_object_store(url, storage_options), retry_seconds)
        try:
            return query_id_of(store)
        except CheckpointStoreError:  # the id is for advice only
            return None

    try:
        return [opened(url)]
    except NotAStoreError as error:
        names = sorted((name for name in error.below if "/" not in name), key=operator_order)
        if not names:
            raise NoOperatorStoreError(error.url, error.below) from error
    return [opened(f"{url.rstrip('/')}/{name}") for name in names]
