"""The operators that this process has planned, found again in the plan of a query.

Spark's plans show the name of the function that `mapInArrow` was called with. The operator's has
its plan id in it, so any DataFrame tells which operators of cowstate it is made with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spark_state.host.epoch_request import OperatorSpec, operator_store_url

_NODE = "MapInArrow"
_EMPTY_SOURCE = "LocalRelation"
_FUNCTION = re.compile(r".+_cowstate_([0-9a-f]{32})")


@dataclass(frozen=True, slots=True)
class PlannedOperator:
    """What the driver has to know of an operator after it was planned."""

    operator: str
    store_root: str
    parallelism: int
    store_retry_seconds: float

    def store_url(self, query_id: str) -> str:
        """Where the operator's store is in this query."""
        return operator_store_url(self.store_root, query_id, self.operator)


# Holds nothing of a processor, so what a session plans in its life fits in.
_planned: dict[str, PlannedOperator] = {}


def function_name(spec: OperatorSpec) -> str:
    """The name that the function of this operator must have to be found by `operators_in`."""
    _planned[spec.plan_id] = PlannedOperator(
        spec.operator, spec.store_root, spec.parallelism, spec.checkpoints.store_retry_seconds
    )
    return f"{spec.operator}_cowstate_{spec.plan_id}"


def operators_in(plan: Any) -> tuple[PlannedOperator, ...]:
    """The operators in a logical plan of the JVM's, each once."""
    return tuple(dict.fromkeys(operator for operator, _ in _nodes(plan)))


def has_input(plan: Any, operator: PlannedOperator) -> bool:
    """Whether a source below `operator` has something new in the batch that this plan is of.

    Spark runs batches without any for the sake of its own stateful operators, or of other sources.
    It puts an empty relation in the place of a source that has nothing new, and does not run what
    stands on nothing else.
    """
    return any(
        leaf.isStreaming() and not _is_empty(leaf)
        for planned, node in _nodes(plan)
        if planned == operator
        for leaf in _leaves(node)
    )


def _nodes(plan: Any) -> Iterator[tuple[PlannedOperator, Any]]:
    if _class_of(plan) == _NODE:
        # The function is the first field of the node, and has another name in every Spark.
        name = _FUNCTION.fullmatch(plan.productElement(0).name())
        if name and name[1] in _planned:
            yield _planned[name[1]], plan
    for child in _children(plan):
        yield from _nodes(child)


def _leaves(plan: Any) -> Iterator[Any]:
    children = _children(plan)
    if not children:
        yield plan
    for child in children:
        yield from _leaves(child)


def _is_empty(leaf: Any) -> bool:
    return _class_of(leaf) == _EMPTY_SOURCE and bool(leaf.data().isEmpty())


def _class_of(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())


def _children(plan: Any) -> list[Any]:
    children = plan.children()
    return [children.apply(index) for index in range(children.size())]
