"""The newest progress of stored operators, however their stores were found."""

from __future__ import annotations

from collections.abc import Sequence

from checkpoint_store.errors import NotAStoreError
from checkpoint_store.operators.operator_order import operator_order
from checkpoint_store.operators.operator_progress import OperatorProgress
from spark_state.errors import ConfigurationError
from spark_state.spark.session.operator_configuration import STORE_KEY
from spark_state.spark.stored.stored_operators import StoredOperator


def newest_progress(
    operators: Sequence[StoredOperator], *, has_run: bool, subtasks: bool
) -> tuple[OperatorProgress, ...]:
    """The progress of each operator in its newest epoch, by name. `has_run`: True if the query has
    run a batch. Raises NotAStoreError if the query has run a batch and no operator has a store;
    CheckpointStoreError."""
    told, missing = [], []
    for operator in sorted(operators, key=lambda operator: operator_order(operator.url)):
        try:
            newest = operator.epochs()[-1:]
        except NotAStoreError as error:
            missing.append(error)
            continue
        told += [operator.progress(epoch, subtasks=subtasks) for epoch in newest]
    if missing and not told and has_run:
        raise missing[0]
    return tuple(told)


def without_operator(query_id: str, root: str) -> ConfigurationError:
    """The error for a query without an operator of cowstate."""
    return ConfigurationError(
        f"query {query_id} has no operator of cowstate: its plan has none, and there is no store "
        f"below {root}/{query_id}. Plan one with spark_state.enable or transform_with_state, or "
        f"set {STORE_KEY} to where the stores of the query are"
    )
