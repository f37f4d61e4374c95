"""The stores of the operators of a query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkpoint_store.errors import NotAStoreError
from checkpoint_store.open_history import open_history
from checkpoint_store.operators.operator_errors import (
    NoOperatorStoreError,
    NotAnOperatorError,
)
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.operators.operator_order import operator_order
from checkpoint_store.provider.provider_errors import StoreNotFoundError


def operators_at(
    url: str, storage_options: Mapping[str, Any] | None, retry_seconds: float
) -> list[OperatorHistory]:
    """Open the operator whose store is at `url`, or all operators of the query whose directory is
    at `url`. Operators are ordered by name; numbers in names count as numbers.

    Raises NotAStoreError if there is no store, and NotAnOperatorError if `url` is a table or a
    query's checkpoint; CorruptObjectError; the errors of the object store.
    """

    def opened(of_url: str) -> OperatorHistory:
        try:
            history = open_history(of_url, storage_options, None, retry_seconds)
        except StoreNotFoundError as error:
            raise NotAnOperatorError(error.url) from error
        if not isinstance(history, OperatorHistory):
            raise NotAnOperatorError(history.url)
        return history

    try:
        return [opened(url)]
    except NotAStoreError as error:
        names = sorted((name for name in error.below if "/" not in name), key=operator_order)
        if not names:
            raise NoOperatorStoreError(error.url, error.below) from error
    return [opened(f"{url.rstrip('/')}/{name}") for name in names]
