"""Side inputs of an operator: broadcast streams and the initial state.

A row of a side input is a struct in a column for that input. The column is null in all other rows:

    columns of the keyed rows, _cowstate_rows_0, _cowstate_rows_1, …

    initial state       a row has the key group of its own key
    broadcast stream    a row comes once for each subtask, with the key group of the control rows of
                        that subtask

The rows of an initial state are the product of its DataFrame and a stream with a single row in the
first batch. In later batches the product has no partition, so the DataFrame is not read. The
DataFrame is planned once and not in every batch, so its shuffles run once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from spark_state.errors import ConfigurationError
from spark_state.processor.condition_errors import session_not_same
from spark_state.processor.input.control_rows import control_key_group
from spark_state.processor.input.epoch_inputs import INITIAL_ROWS, SideInput, broadcast_input
from spark_state.processor.input.key_grouping import InputLayout
from spark_state.processor.schemas import fields_text, have_same_types
from spark_state.spark.input.first_batch_source import first_batch
from spark_state.spark.input.keyed_input import KEY_GROUP_COLUMN, SIDE_COLUMN, keyed_input
from spark_state.spark.session.connect_sessions import is_connect
from spark_state.spark.session.logical_plans import columns_of
from spark_state.spark.session.session_facts import changed_setting

_ROWS, _SUBTASK = "rows", "subtask"
_ADAPTIVE = "spark.sql.adaptive.enabled"


@dataclass(frozen=True, slots=True)
class SideRows:
    """A side input. `df` has a column `rows` of structs, and the key group."""

    name: str
    layout: InputLayout
    df: DataFrame


def check_broadcast(grouped: DataFrame, broadcast: Any) -> None:
    """Raise ConfigurationError unless `broadcast` is a dict of streaming DataFrames by name, of the
    session of `grouped`, and `grouped` is a stream, too."""
    if not isinstance(broadcast, Mapping) or not all(
        isinstance(name, str) and name and isinstance(df, DataFrame)
        for name, df in broadcast.items()
    ):
        raise ConfigurationError(
            f"broadcast is a dict of streaming DataFrames by their names, got {broadcast!r}"
        )
    for name, df in broadcast.items():
        if not _is_of_session(df, grouped.sparkSession):
            raise session_not_same(f"broadcast stream {name!r} and the grouped DataFrame")
        if not df.isStreaming:
            raise ConfigurationError(
                f"broadcast stream {name!r} is a batch DataFrame, which has no new rows from batch "
                "to batch: read it with spark.readStream, or give its rows to the processor itself"
            )
        repeated = sorted({column for column in df.columns if df.columns.count(column) > 1})
        if repeated:
            raise ConfigurationError(
                f"broadcast stream {name!r} has several columns called {repeated[0]!r}: rename one"
            )
        if not grouped.isStreaming:
            raise ConfigurationError(
                f"broadcast stream {name!r} needs an operator on a streaming DataFrame; in a batch "
                "job give its rows to the processor itself"
            )


def broadcast_rows(name: str, df: DataFrame, parallelism: int) -> SideRows:
    """The rows of a broadcast stream, once for each subtask."""
    structs = df.select(F.struct(*columns_of(df)).alias(_ROWS))
    subtasks = F.explode(F.sequence(F.lit(0), F.lit(parallelism - 1))).alias(_SUBTASK)
    key_group = (F.lit(control_key_group(0)) - F.col(_SUBTASK)).cast("int")
    copies = structs.select(_ROWS, subtasks).select(_ROWS, key_group.alias(KEY_GROUP_COLUMN))
    return SideRows(broadcast_input(name), InputLayout(tuple(df.columns), ()), copies)


def initial_rows(
    grouped: DataFrame, initial_state: Any, key_fields: Sequence[StructField], max_parallelism: int
) -> SideRows:
    """The rows of an initial state, for an operator on `grouped` with this key. Raises
    ConfigurationError for a DataFrame that is streaming, belongs to another session or has another
    key, and the errors of keyed_input."""
    spark, df = grouped.sparkSession, initial_state._df
    if not _is_of_session(df, spark):
        raise session_not_same("the initial state and the grouped DataFrame")
    if df.isStreaming:
        raise ConfigurationError(
            "the initial state cannot be a streaming DataFrame: read it with spark.read"
        )
    keyed, layout, initial_fields = keyed_input(initial_state, max_parallelism)
    if not have_same_types(initial_fields, key_fields):
        raise ConfigurationError(
            f"the initial state is grouped by ({fields_text(initial_fields)}), the operator by "
            f"({fields_text(key_fields)}): group both by columns of the same types, in the same "
            "order; their names may differ"
        )
    *columns, key_group = columns_of(keyed)
    rows = keyed.select(F.struct(*columns).alias(_ROWS), key_group)
    if grouped.isStreaming:
        product = first_batch(spark).hint("shuffle_replicate_nl").crossJoin(_planned_once(rows))
        rows = product.select(_ROWS, KEY_GROUP_COLUMN)
    return SideRows(INITIAL_ROWS, layout, rows)


def _planned_once(df: DataFrame) -> DataFrame:
    """The rows of `df`, planned now and not again in each batch. Adaptive execution is off during
    the planning, because with adaptive execution Spark would already run the shuffles. With Spark
    Connect, returns `df` unchanged, and Spark plans `df` in each batch."""
    spark: Any = df.sparkSession
    if is_connect(spark):
        return df
    with changed_setting(spark, _ADAPTIVE, "false"):
        rows = df.select("*")._jdf.queryExecution().toRdd()
    planned = spark._jsparkSession.internalCreateDataFrame(rows, df._jdf.schema(), False)
    return DataFrame(planned, spark)


def with_side_rows(
    keyed: DataFrame, sides: Sequence[SideRows]
) -> tuple[DataFrame, tuple[SideInput, ...]]:
    """The union of the rows of `keyed` and of all sides, and the column of each side."""
    columns = [f"{SIDE_COLUMN}{number}" for number in range(len(sides))]
    types = [side.df.schema[_ROWS].dataType for side in sides]

    def nulls(but: int | None) -> list[Column]:
        return [
            F.col(_ROWS).alias(column)
            if number == but
            else F.lit(None).cast(data_type).alias(column)
            for number, (column, data_type) in enumerate(zip(columns, types, strict=True))
        ]

    united = keyed.select("*", *nulls(None))
    for number, side in enumerate(sides):
        of_keyed = [
            F.col(KEY_GROUP_COLUMN)
            if field.name == KEY_GROUP_COLUMN
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in keyed.schema.fields
        ]
        united = united.union(side.df.select(*of_keyed, *nulls(number)))
    pairs = zip(sides, columns, strict=True)
    return united, tuple(SideInput(side.name, column, side.layout) for side, column in pairs)


def _is_of_session(df: DataFrame, spark: Any) -> bool:
    if is_connect(spark) or is_connect(df.sparkSession):
        return df.sparkSession is spark
    return bool(df._jdf.sparkSession().equals(spark._jsparkSession))
