"""The operators of a query and their stores: found in the query's plan, or below
`spark.cowstate.store` by query id."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pyspark.sql.types import StructType

from checkpoint_store.epochs.completed_checkpoint import CompletedCheckpoint, StateSchema
from checkpoint_store.errors import ObjectMissingError, StoreAccessError
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.objects.store_outages import RETRY_SECONDS
from checkpoint_store.objects.store_url import absolute_url
from checkpoint_store.open_history import open_history
from checkpoint_store.operators.operator_errors import NotAnOperatorError
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.operators.operator_progress import OperatorProgress
from checkpoint_store.progress_reader import progress_at
from checkpoint_store.provider.spark_checkpoint import query_id_of
from spark_state.processor.stored_schema import struct_from_json
from spark_state.spark.session.operator_configuration import LOCAL_STORE, STORE_KEY
from spark_state.spark.session.planned_operators import operators_in
from spark_state.spark.session.store_options import store_options
from spark_state.subtasks.epoch_request import operator_store_url

_NUMBERED = re.compile(r"operator-(\d+)")


@dataclass(frozen=True)
class StoredOperator:
    """An operator's store. A batch without an epoch does not change the state. `retry_seconds`: how
    long a failing call to the store is tried again; `store_options`: options for the client of the
    store."""

    name: str
    url: str
    retry_seconds: float = RETRY_SECONDS
    store_options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    @cached_property
    def history(self) -> OperatorHistory:
        history = open_history(self.url, self.store_options, retry_seconds=self.retry_seconds)
        if not isinstance(history, OperatorHistory):
            raise NotAnOperatorError(history.url)
        return history

    @cached_property
    def key_schema(self) -> StructType:
        return struct_from_json(self.history.metadata.key_schema_json)

    @property
    def key_names(self) -> list[str]:
        return list(self.key_schema.names)

    def epoch_of(self, batch: int) -> int:
        """The epoch whose state the operator has after a batch: the newest epoch up to the batch.
        Raises VersionNotRetainedError."""
        versions = self.history.versions()
        place = bisect_right(versions, batch)
        if not place:
            raise self.history.absent(batch, versions)
        return versions[place - 1]

    def epochs(self) -> list[int]:
        """The readable epochs, rising."""
        return self.history.versions()

    def progress(self, epoch: int, *, subtasks: bool = False) -> OperatorProgress:
        """The progress of an epoch. Raises VersionNotRetainedError, CorruptObjectError."""
        return progress_at(self.history, epoch, subtasks=subtasks)


def states_of(checkpoint: CompletedCheckpoint) -> dict[str, StateSchema]:
    """The states in an epoch, by name."""
    return {state.name: state for barrier in checkpoint.barriers for state in barrier.states}


def deleted_states_of(checkpoint: CompletedCheckpoint) -> dict[str, StateSchema]:
    """The states that `init` declares and deletes in an epoch, by name. Such states are empty."""
    return {
        state.name: state for barrier in checkpoint.barriers for state in barrier.deleted_states
    }


def operators_in_plan(
    plan: Any, query_id: str, retry_seconds: float | None = None
) -> tuple[StoredOperator, ...]:
    """The operators in the plan of a query, last operator first. Finds only operators that this
    process has planned. `retry_seconds`: None for each operator's own retry time."""
    return tuple(
        StoredOperator(
            planned.operator,
            planned.store_url(query_id),
            planned.store_retry_seconds if retry_seconds is None else retry_seconds,
            planned.store_options,
        )
        for planned in operators_in(plan)
    )


def operators_below(
    root: str, query_id: str, retry_seconds: float, options: Mapping[str, Any]
) -> tuple[StoredOperator, ...]:
    """The operators of a query that have a store below a root, in no order. `options`: for clients
    of stores. Raises CheckpointStoreError."""
    root = absolute_url(root)
    store = RetryingObjectStore(open_object_store(root, options), retry_seconds)
    names = [name.rpartition("/")[2] for name in store.list_directories(query_id)]
    return tuple(
        StoredOperator(name, operator_store_url(root, query_id, name), retry_seconds, options)
        for name in names
    )


def operators_of(checkpoint: str, settings: Mapping[str, str]) -> dict[int, StoredOperator]:
    """The operators of the query with this checkpoint, by operator number. Leaves out operators
    with names that the user chose, because such operators have no number. `settings`: the settings
    of the session. Raises CheckpointStoreError."""
    try:
        query_id = query_id_of(open_object_store(checkpoint))
    except (ObjectMissingError, StoreAccessError):
        return {}  # Spark says what is wrong with the location, or can read it itself
    root, operators = settings.get(STORE_KEY, LOCAL_STORE), {}
    options = store_options(settings)
    for operator in operators_below(root, query_id, RETRY_SECONDS, options):
        numbered = _NUMBERED.fullmatch(operator.name)
        if numbered:
            operators[int(numbered[1])] = operator
    return dict(sorted(operators.items()))
