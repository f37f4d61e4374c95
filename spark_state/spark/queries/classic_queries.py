"""Checks queries of classic Spark with operators of cowstate, before the queries start.

After the checks, this module tells the query's tasks the epoch that each operator must have and the
runs that have ended, and turns adaptive execution off. `connect_queries` has the checks for Spark
Connect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_state.errors import ConfigurationError
from spark_state.spark.queries.adaptive_plans import turn_adaptive_plans_off
from spark_state.spark.queries.ended_runs import name_ended_runs, note_started
from spark_state.spark.queries.operator_starts import name_starts
from spark_state.spark.queries.query_starts import (
    CHECKED_OPTIONS,
    LOCATIONS_KEY,
    check_starts,
    checkpoint_location,
    refuse_async_progress,
    refuse_state_of_spark,
)
from spark_state.spark.queries.restore_source import check_one_epoch
from spark_state.spark.session.logical_plans import analyzed_plan
from spark_state.spark.session.planned_operators import (
    PlannedOperator,
    inputs_of,
    operators_in,
)


def check_classic_queries() -> None:
    """Check later starts of queries of this process. Safe to call again."""
    check_starts(DataStreamWriter, _check)


def _check(
    writer: DataStreamWriter, options: Mapping[str, Any]
) -> Callable[[StreamingQuery | None], None] | None:
    plan = analyzed_plan(writer._df)
    operators = operators_in(plan)
    if not operators:
        return None
    _refuse_dropped(writer, plan, operators)
    check_one_epoch((planned.operator, planned.restore_from) for planned in operators)
    root = writer._spark.conf.get(LOCATIONS_KEY, None)
    given = {**_options_before(writer), **options}
    refuse_async_progress(given)
    location = checkpoint_location(given, root, name=None)
    if location is not None:
        refuse_state_of_spark(location, writer._spark)
    name_ended_runs(writer._spark.sparkContext)
    # Last: a local property of this thread would stay if a later check refused the query.
    note_first_commit = name_starts(writer._spark, location, inputs_of(plan))
    restore_adaptive_plans = turn_adaptive_plans_off(writer._spark)

    def note(query: StreamingQuery | None) -> None:
        restore_adaptive_plans()
        if query is not None:
            note_started(query)
        note_first_commit(query)

    return note


def _refuse_dropped(
    writer: DataStreamWriter, plan: Any, operators: Sequence[PlannedOperator]
) -> None:
    """Raise ConfigurationError if Spark would leave an operator out of its plans: Spark would
    commit batches without the operator's epochs (I5)."""
    optimizer = writer._spark._jsparkSession.sessionState().optimizer()
    kept = operators_in(optimizer.execute(plan))
    for operator in operators:
        if operator not in kept:
            raise ConfigurationError(
                f"Spark does not run operator {operator.operator!r}, because a later step of the "
                "query drops all rows (a limit of 0, for example): remove that step, or the "
                "operator"
            )


def _options_before(writer: DataStreamWriter) -> dict[str, str]:
    values = {name: writer._jwrite.extraOptions().get(name) for name in CHECKED_OPTIONS}
    return {name: value.get() for name, value in values.items() if value.isDefined()}
