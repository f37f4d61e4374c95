"""Finds the cowstate operators in the plan of a query.

Spark's plans show the name of the function in a `mapInArrow` call. The name of an operator's
function contains its plan id. So the plan of any DataFrame shows the cowstate operators in the
plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from spark_state.spark.session.connect_plans import functions_of, plan_nodes
from spark_state.spark.session.connect_sessions import is_connect
from spark_state.spark.session.logical_plans import (
    analyzed_plan,
    class_of,
    elements,
    nodes_of,
)
from spark_state.subtasks.epoch_request import (
    OperatorSpec,
    RestoreSource,
    operator_store_url,
)

_NODE = "MapInArrow"
_EMPTY_SOURCE = "LocalRelation"
_FUNCTION = re.compile(r"(?P<operator>.+)_cowstate_(?P<plan_id>[0-9a-f]{32})")


@dataclass(frozen=True, slots=True)
class PlannedOperator:
    """The facts that the driver needs about an operator after planning."""

    operator: str
    store_root: str
    parallelism: int
    store_retry_seconds: float
    restore_from: RestoreSource | None = None
    store_options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    def store_url(self, query_id: str) -> str:
        """The URL of the operator's store in this query."""
        return operator_store_url(self.store_root, query_id, self.operator)


@dataclass(frozen=True, slots=True)
class OperatorInputs:
    """An operator, and its sources. `places`: the positions of the operator's sources among the
    sources of the query; `sources`: the number of sources of the query."""

    operator: PlannedOperator
    places: tuple[int, ...]
    sources: int


# An entry is small and holds no processor, so no entry is removed.
_planned: dict[str, PlannedOperator] = {}


def function_name(spec: OperatorSpec) -> str:
    """Remember a planned operator, and return the name for the operator's function. `operators_in`
    recognizes the operator by this name."""
    checkpoints = spec.checkpoints
    _planned[spec.plan_id] = PlannedOperator(
        spec.operator,
        spec.store_root,
        spec.parallelism,
        checkpoints.store_retry_seconds,
        checkpoints.restore_from,
        checkpoints.store_options,
    )
    return f"{spec.operator}_cowstate_{spec.plan_id}"


def operator_names_below(df: DataFrame) -> set[str]:
    """The names of the operators upstream of a DataFrame. With Spark Connect, another client may
    have planned the operators."""
    if not is_connect(df.sparkSession):
        return {planned.operator for planned in operators_in(analyzed_plan(df))}
    return {function["operator"] for function in _connect_functions(df)}


def roots_of_connect_operators(df: DataFrame, root: str) -> tuple[tuple[str, str], ...]:
    """The operators upstream of a Spark Connect DataFrame, last operator first: for each operator,
    its name and the root URL of its store. An operator that another client has planned gets the
    URL `root`."""
    operators: dict[str, str] = {}
    for function in _connect_functions(df):
        planned = _planned.get(function["plan_id"])
        operators[function["operator"]] = root if planned is None else planned.store_root
    return tuple(operators.items())


def restore_sources_below(df: DataFrame) -> list[tuple[str, RestoreSource | None]]:
    """The names and restore sources of the operators upstream of a Spark Connect DataFrame. Leaves
    out operators that another client has planned."""
    plan_ids = (function["plan_id"] for function in _connect_functions(df))
    planned = (_planned[plan_id] for plan_id in plan_ids if plan_id in _planned)
    return [(operator.operator, operator.restore_from) for operator in planned]


def _connect_functions(df: DataFrame) -> list[re.Match[str]]:
    functions = (_FUNCTION.fullmatch(name) for name in functions_of(plan_nodes(df)))
    return [function for function in functions if function]


def operators_in(plan: Any) -> tuple[PlannedOperator, ...]:
    """The operators in a logical plan of the JVM, each once."""
    return tuple(dict.fromkeys(operator for operator, _ in _operator_nodes(plan)))


def inputs_of(plan: Any) -> list[OperatorInputs]:
    """The operators in an analysed plan, each once, with their sources. Spark counts the sources of
    a query in the order of the leaves of its plan."""
    streams = _streams(plan)
    places: dict[PlannedOperator, set[int]] = {}
    for operator, node in _operator_nodes(plan):
        below = _streams(node)
        places.setdefault(operator, set()).update(
            place for place, leaf in enumerate(streams) if any(leaf == each for each in below)
        )
    return [
        OperatorInputs(operator, tuple(sorted(of_operator)), len(streams))
        for operator, of_operator in places.items()
    ]


def has_input(plan: Any, operator: PlannedOperator) -> bool:
    """Return True if a source below `operator` has new rows in the batch of this plan.

    Spark also runs batches without new rows, for its own stateful operators, and batches with new
    rows of other sources only. Spark replaces a source without new rows by an empty relation, and
    does not run the operators that read only such relations.
    """
    return any(
        not (class_of(leaf) == _EMPTY_SOURCE and leaf.data().isEmpty())
        for planned, node in _operator_nodes(plan)
        if planned == operator
        for leaf in _streams(node)
    )


def _operator_nodes(plan: Any) -> Iterator[tuple[PlannedOperator, Any]]:
    for node in nodes_of(plan):
        if class_of(node) == _NODE:
            # The function is the first field of the node. Releases differ in the field's name.
            name = _FUNCTION.fullmatch(node.productElement(0).name())
            if name and name["plan_id"] in _planned:
                yield _planned[name["plan_id"]], node


def _streams(plan: Any) -> list[Any]:
    return [leaf for leaf in elements(plan.collectLeaves()) if leaf.isStreaming()]
