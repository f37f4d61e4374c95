"""`enable`: transformWithState of existing jobs runs on cowstate, session by session.

`enable` replaces two methods of PySpark's GroupedData or, for a session of Spark Connect, two
methods of the client's GroupedData. Each call reads `spark.cowstate.enabled` of its session, so the
other sessions of the process keep Spark's own operator.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from inspect import signature
from typing import Any

from pyspark.sql import DataFrame, GroupedData, SparkSession

from spark_state.errors import ConfigurationError
from spark_state.spark.input.operator_call import OperatorCall
from spark_state.spark.operator.early_hosts import start_hosts_early
from spark_state.spark.operator.operator_plan import plan_or_fall_back
from spark_state.spark.queries.connect_queries import check_connect_queries
from spark_state.spark.queries.query_progress import (
    show_operators_in_connect_progress,
    show_operators_in_progress,
)
from spark_state.spark.session.connect_sessions import is_connect, is_session
from spark_state.spark.session.failure_causes import say_causes_first
from spark_state.spark.session.operator_configuration import (
    ENABLED_KEY,
    FALLBACK_KEY,
    is_enabled,
    parse_configuration,
    runs_on_spark_instead,
)
from spark_state.spark.session.operator_settings import check_keys
from spark_state.spark.session.planned_operators import operator_names_below
from spark_state.spark.session.replaced_methods import replace_once
from spark_state.spark.session.session_facts import session_facts
from spark_state.spark.session.worker_interpreter import use_driver_interpreter
from spark_state.spark.stored.connect_reads import refuse_connect_reads
from spark_state.spark.stored.statestore_reads import answer_statestore_reads

_METHODS = ("transformWithState", "transformWithStateInPandas")
_MARK = "_cowstate_plans"


def enable(spark: SparkSession, *, fallback: str | None = None) -> None:
    """Let `transformWithState` and `transformWithStateInPandas` of this session run on cowstate.

    Jobs need no change. A call that cowstate cannot run is an error that names the problem and the
    way out. With `fallback="spark"` Spark runs the call, and a warning names the call and the
    reason. `fallback=None` does not change `spark.cowstate.fallback`, whose default is "error".

    An operator's state lies in the directory `operator-<n>` of its query's directory. The number
    counts the cowstate operators upstream. The class of the processor is not part of the path, so a
    new class in the same place of the query continues with the state.

    In a local session the state hosts start now, in the background, if the session's settings are
    valid; otherwise with the first plan of an operator. So set `spark.cowstate.hostsPerExecutor`
    and `spark.cowstate.hostIdleSeconds` before.

    `spark.cowstate.enabled=true` in the configuration has the same effect, if `configure` is
    called. Sessions that are not enabled keep Spark's own operator. Raises ConfigurationError for
    an unknown fallback, and if `spark` is not a session.
    """
    _check_session(spark)
    if fallback is not None:
        runs_on_spark_instead({FALLBACK_KEY: fallback})
        spark.conf.set(FALLBACK_KEY, fallback)
    spark.conf.set(ENABLED_KEY, "true")
    obey_enabled_sessions(spark)
    if not is_connect(spark):
        with suppress(ConfigurationError):  # planning an operator raises the error
            settings = parse_configuration(dict(spark.conf.getAll), session_facts(spark))
            use_driver_interpreter(spark)
            start_hosts_early(spark, settings.hosts)


def disable(spark: SparkSession) -> None:
    """Give `transformWithState` and `transformWithStateInPandas` of this session back to Spark.
    Queries that were planned before stay on cowstate."""
    _check_session(spark)
    spark.conf.set(ENABLED_KEY, "false")


def obey_enabled_sessions(spark: SparkSession | None = None) -> None:
    """Make `transformWithState` plan operators of cowstate in the enabled sessions of this process.
    Changes the classes of Spark Connect if `spark` is a session of Spark Connect; otherwise the
    classes of classic Spark. Safe to call again."""
    say_causes_first()
    grouped: Any = GroupedData
    if is_connect(spark):
        from pyspark.sql.connect.group import GroupedData as ConnectGroupedData

        grouped = ConnectGroupedData
        refuse_connect_reads()
        check_connect_queries()
        show_operators_in_connect_progress()
    else:
        answer_statestore_reads()
        show_operators_in_progress()
    for name in _METHODS:
        replace_once(grouped, name, _MARK, _replacement)


def _replacement(spark_method: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    in_pandas = spark_method.__name__ == "transformWithStateInPandas"

    @wraps(spark_method)
    def method(self: Any, *arguments: Any, **named: Any) -> DataFrame:
        given = signature(spark_method).bind(self, *arguments, **named)
        given.apply_defaults()
        call = OperatorCall("pandas" if in_pandas else "rows", *given.args)
        df: DataFrame = self._df
        settings = dict(df.sparkSession.conf.getAll)
        check_keys(settings)
        if not is_enabled(settings):
            return call.on_spark(spark_method.__name__)
        return plan_or_fall_back(call, f"operator-{len(operator_names_below(df))}")

    return method


def _check_session(spark: object) -> None:
    if not is_session(spark):
        raise ConfigurationError(
            f"enable and disable need a session, got {spark!r}; with a builder, call getOrCreate "
            "first"
        )
