"""The watermarks upstream of an operator in a plan, and columns that carry their event times.

Spark takes the event times of a watermark at the place of `withWatermark` in the plan. Later steps
of the plan may drop the column, make windows of the column, or unite rows of several watermarks. So
this module adds two columns right after each `withWatermark`, and carries the columns through the
plan to the operator:

    _cowstate_event_ms     the event time of the row, null in rows without a watermark
    _cowstate_upstream     the number of the row's watermark

If there is a single watermark, and the operator's rows still have the watermark's column, no
columns are added. With Spark Connect no plan can be rebuilt, so only this case is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampType

from spark_state.errors import UnsupportedOperationError
from spark_state.spark.session.connect_plans import (
    has_aggregated_watermark,
    is_united_below,
    plan_nodes,
    watermarks_of,
)
from spark_state.spark.session.connect_sessions import is_connect
from spark_state.spark.session.logical_plans import (
    analyzed_plan,
    class_of,
    column_of,
    dataframe_of,
    elements,
    nodes_of,
)

EVENT_TIME_COLUMN, UPSTREAM_COLUMN = "_cowstate_event_ms", "_cowstate_upstream"
DELAY_KEY = "spark.watermarkDelayMs"

_WATERMARK, _UNION, _PROJECT = "EventTimeWatermark", "Union", "Project"
# The output of these nodes has all columns of the input, so also the carried columns.
_PASSING = {
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "Filter",
    "Join",
    "RepartitionByExpression",
    "Repartition",
    "SubqueryAlias",
}


@dataclass(frozen=True, slots=True)
class UpstreamWatermarks:
    """The watermarks upstream of an operator. `df`: the operator's DataFrame, with the `carried`
    columns if any; `delays_ms`: the delay of each watermark."""

    df: DataFrame
    carried: tuple[Column, ...]
    delays_ms: tuple[int, ...]


class _NotCarriedError(Exception):
    """The output of a node of the plan lacks the carried columns of the node's input. The error has
    the node's name."""


def upstream_watermarks(df: DataFrame) -> UpstreamWatermarks:
    """The watermarks on the way from the sources to an operator whose input is `df`. Raises
    UnsupportedOperationError if there are several watermarks and the plan loses the connection
    between rows and watermarks."""
    if not df.isStreaming:
        return UpstreamWatermarks(df, (), ())
    spark = df.sparkSession
    if is_connect(spark):
        return UpstreamWatermarks(df, (), _only_delay_ms(df))
    plan = analyzed_plan(df)
    nodes, delays_ms = _watermarks(plan), watermark_delays_ms(df)
    if not nodes or _has_the_only_column(plan, [*nodes.values()]):
        return UpstreamWatermarks(df, (), delays_ms)
    carrier = _Carrier(spark, [*nodes])
    try:
        carrying, attributes = carrier.carried(plan)
    except _NotCarriedError as error:
        if len(nodes) == 1:
            return UpstreamWatermarks(df, (), delays_ms)
        raise UnsupportedOperationError(
            f"the rows of {len(nodes)} watermarks cannot be told apart below {error} in the plan: "
            "call withWatermark once, after the rows were united or joined"
        ) from error
    columns = tuple(column_of(spark, attribute) for attribute in attributes)
    return UpstreamWatermarks(dataframe_of(spark, carrying), columns, delays_ms)


def check_not_behind_aggregation(df: DataFrame) -> None:
    """Raise UnsupportedOperationError for an operator in event time whose input is the output of an
    aggregation with a watermark. Such an operator sees only closed windows, so its time would be
    far behind Spark's."""
    if not df.isStreaming:
        return
    if is_connect(df.sparkSession):
        is_behind = has_aggregated_watermark(plan_nodes(df))
    else:
        aggregates = [node for node in nodes_of(analyzed_plan(df)) if class_of(node) == "Aggregate"]
        is_behind = any(node.isStreaming() and _watermarks(node) for node in aggregates)
    if is_behind:
        raise UnsupportedOperationError(
            "an operator in time mode 'EventTime' is behind an aggregation with a watermark, which "
            "it cannot see: its timers would fire later than Spark's. Aggregate in the processor, "
            "write the aggregates to a table and read them in another query, or let Spark run the "
            "operator (spark.cowstate.fallback=spark)"
        )


def watermark_delays_ms(df: DataFrame) -> tuple[int, ...]:
    """The delays of the watermarks upstream of an operator whose input is `df`."""
    if is_connect(df.sparkSession):
        return _only_delay_ms(df)
    return tuple(_delay_ms(node) for node in _watermarks(analyzed_plan(df)).values())


def _only_delay_ms(df: DataFrame) -> tuple[int, ...]:
    """The delay of the watermark of a DataFrame of Spark Connect; empty without a watermark. Raises
    UnsupportedOperationError if there are several watermarks, if the rows do not have exactly one
    column of event times, of type timestamp, or if a union comes after `withWatermark`."""
    nodes = plan_nodes(df)
    watermarks = watermarks_of(nodes)
    marked = [field for field in df.schema.fields if DELAY_KEY in field.metadata]
    if not watermarks and not marked:
        return ()
    kinds = [type(field.dataType) for field in marked]
    if len(watermarks) == 1 and kinds == [TimestampType] and not is_united_below(nodes):
        return (int(marked[0].metadata[DELAY_KEY]),)
    names = ", ".join(field.name for field in marked) or "no column"
    raise UnsupportedOperationError(
        f"with Spark Connect an operator with time needs the column of its only watermark: there "
        f"are {len(watermarks)} watermarks, and its rows have {names} from them. Unite the rows, "
        "call withWatermark once after that, and keep its column, of type timestamp, but no copy "
        "or window of it. Or run the query in a session of classic Spark"
    )


def _watermarks(plan: Any) -> dict[str, Any]:
    """The watermarks of a plan, each once, by id."""
    return {_node_id(node): node for node in nodes_of(plan) if class_of(node) == _WATERMARK}


class _Carrier:
    """Rebuilds a plan with the carried columns. `node_ids`: the ids of the watermarks; the index of
    an id is the watermark's number in _cowstate_upstream."""

    def __init__(self, spark: SparkSession, node_ids: Sequence[str]) -> None:
        self._spark = spark
        self._node_ids = node_ids
        self._jvm: Any = spark._jvm

    def carried(self, plan: Any) -> tuple[Any, list[Any]]:
        """The new plan, and the attributes of the carried columns in the new plan; no attributes if
        `plan` has no watermark."""
        name = class_of(plan)
        if name == _WATERMARK:
            return self._begun(plan)
        children = [self.carried(child) for child in elements(plan.children())]
        if not any(attributes for _, attributes in children):
            return plan, []
        if name == _UNION:
            pairs = zip(elements(plan.children()), children, strict=True)
            united = [self._in_order(before, *after) for before, after in pairs]
            changed = plan.withNewChildren(self._sequence(united))
            return changed, elements(changed.output())[-2:]
        ((_, attributes),) = [c for c in children if c[1]][:1]
        if name == _PROJECT:
            added = plan.projectList().appendedAll(self._sequence(attributes))
            return self._project(added, children[0][0]), attributes
        changed = plan.withNewChildren(self._sequence([child for child, _ in children]))
        given = {attribute.exprId().id() for attribute in elements(changed.output())}
        several = sum(1 for _, watermarks in children if watermarks) > 1
        lost = any(attribute.exprId().id() not in given for attribute in attributes)
        if name not in _PASSING or several or lost:
            raise _NotCarriedError(name)
        return changed, attributes

    def _begun(self, watermark: Any) -> tuple[Any, list[Any]]:
        rows = dataframe_of(self._spark, watermark)
        index = _event_index(watermark)
        event = column_of(self._spark, elements(watermark.output())[index])
        kind = rows.schema.fields[index].dataType
        if isinstance(kind, StructType):
            event, kind = event["end"], kind["end"].dataType
        if not isinstance(kind, TimestampType):
            raise _NotCarriedError(f"{_WATERMARK} of type {kind.simpleString()}")
        number = F.lit(self._node_ids.index(_node_id(watermark)))
        return self._with_columns(watermark, F.unix_millis(event), number)

    def _in_order(self, before: Any, plan: Any, attributes: list[Any]) -> Any:
        """A branch of a union: the branch's own columns, then the carried columns, which are null
        if the branch has no watermark. `before`: the branch without the carried columns."""
        if not attributes:
            nothing = F.lit(None)
            return self._with_columns(plan, nothing.cast("long"), nothing.cast("int"))[0]
        ordered = before.output().appendedAll(self._sequence(attributes))
        return self._project(ordered, plan)

    def _with_columns(self, plan: Any, event_ms: Column, number: Column) -> tuple[Any, list[Any]]:
        rows = [column_of(self._spark, attribute) for attribute in elements(plan.output())]
        added = event_ms.alias(EVENT_TIME_COLUMN), number.alias(UPSTREAM_COLUMN)
        changed = analyzed_plan(dataframe_of(self._spark, plan).select(*rows, *added))
        return changed, elements(changed.output())[-2:]

    def _project(self, expressions: Any, child: Any) -> Any:
        return self._jvm.org.apache.spark.sql.catalyst.plans.logical.Project(expressions, child)

    def _sequence(self, elements: list[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(elements)


def _has_the_only_column(plan: Any, watermarks: list[Any]) -> bool:
    """Return True if the plan has a single watermark and no union, and the rows have the
    watermark's column."""
    if len(watermarks) > 1 or any(class_of(node) == _UNION for node in nodes_of(plan)):
        return False
    event = elements(watermarks[0].output())[_event_index(watermarks[0])]
    return event.exprId().id() in {a.exprId().id() for a in elements(plan.output())}


def _event_index(watermark: Any) -> int:
    """The position of the event times in a watermark's output."""
    event_id = watermark.eventTime().exprId().id()
    ids = [attribute.exprId().id() for attribute in elements(watermark.output())]
    return ids.index(event_id)


def _delay_ms(watermark: Any) -> int:
    event = elements(watermark.output())[_event_index(watermark)]
    return int(event.metadata().getLong(DELAY_KEY))


def _node_id(watermark: Any) -> str:
    """The id of a watermark. In a union of a DataFrame with itself, one watermark appears twice."""
    return str(watermark.productElement(0).toString())
