"""Reads of Spark's state formats in enabled sessions of Spark Connect.

In classic Spark such a read finds operators of cowstate, see `statestore_reads`. With Spark Connect
the client may not reach the checkpoint and the stores. So a read of an operator of cowstate raises
an error that says how to read the state instead. A task of the server looks for the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame

from spark_state.errors import UnsupportedOperationError
from spark_state.spark.session.connect_sessions import called_in_task
from spark_state.spark.session.operator_configuration import is_enabled
from spark_state.spark.session.setting_values import PREFIX
from spark_state.spark.stored.statestore_reads import METADATA, STATE, answer_loads
from spark_state.spark.stored.stored_operators import operators_of


def refuse_connect_reads() -> None:
    """Make reads of `statestore` and `state-metadata` raise an error for operators of cowstate, in
    this process. Safe to call again."""
    from pyspark.sql.connect.readwriter import DataFrameReader

    answer_loads(DataFrameReader, _answered)


def _answered(reader: Any, path: Any, on_spark: Callable[[], DataFrame]) -> DataFrame:
    spark, source = reader._client, str(reader._format).lower()
    if source not in (STATE, METADATA):
        return on_spark()
    settings = {k: v for k, v in spark.conf.getAll.items() if k.startswith(PREFIX)}
    if not is_enabled(settings):
        return on_spark()
    given = {name.lower(): value for name, value in reader._options.items()}
    is_state = source == STATE
    of_timers = given.get("readregisteredtimers", "false").lower() == "true"
    if is_state and not (given.get("statevarname") or of_timers):
        return on_spark()  # a state of Spark's other operators
    checkpoint = path if isinstance(path, str) else given.get("path", "")
    urls = called_in_task(spark, _urls_of_operators, checkpoint, settings)
    asked = [given.get("operatorid", "0")] if is_state else sorted(urls)
    for number in asked:
        if number in urls:
            raise UnsupportedOperationError(
                f'format("{reader._format}") does not read operators of cowstate with Spark '
                f'Connect: read the state with spark.read.format("cowstate").load("{urls[number]}")'
                ', with option "stateVarName" if there are several'
            )
    return on_spark()


def _urls_of_operators(checkpoint: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The URLs of the stores of the query with this checkpoint, by operator number."""
    operators = operators_of(checkpoint, settings)
    return {str(number): operator.url for number, operator in operators.items()}
