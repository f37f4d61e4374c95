"""Builds the input of an operator: rows with their key and their key group.

    computed key columns, all columns of the grouped DataFrame, _cowstate_key_group,
    and in a time mode: the columns, if any, in which upstream_watermarks carries event times to the
    operator, and then _cowstate_batch_ms

The key consists of the arguments of `groupBy`: columns of the DataFrame, identified by their ids
and not by their names, and expressions, which are computed. On the way to the operator, Spark and
Arrow identify columns by name. So if several columns have the same name, all but the first are
renamed on the way. A processor sees rows with the user's names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

from spark_state.errors import ConfigurationError, KeyGroupError
from spark_state.key_group_assignment import SEED, is_hashable_type
from spark_state.keyed_state.state_rows import RESERVED_COLUMNS
from spark_state.processor.input.key_grouping import InputLayout
from spark_state.spark.input.upstream_watermarks import (
    EVENT_TIME_COLUMN,
    UPSTREAM_COLUMN,
    UpstreamWatermarks,
)
from spark_state.spark.session.connect_sessions import is_connect
from spark_state.spark.session.logical_plans import (
    column_of,
    columns_of,
    elements,
    output_of,
    quoted,
)

KEY_GROUP_COLUMN = "_cowstate_key_group"
BATCH_TIME_COLUMN = "_cowstate_batch_ms"
SIDE_COLUMN = "_cowstate_rows_"
_OWN_COLUMNS = KEY_GROUP_COLUMN, BATCH_TIME_COLUMN, EVENT_TIME_COLUMN, UPSTREAM_COLUMN


def keyed_input(
    grouped: Any, max_parallelism: int, upstream: UpstreamWatermarks | None = None
) -> tuple[DataFrame, InputLayout, list[StructField]]:
    """The input of an operator on `df.groupBy(…)`, its layout, and the fields of its key.

    `upstream`: the watermarks upstream of the operator, or None if the operator does not use event
    times. The columns that carry event times come after the key group; with Spark Connect there are
    no such columns, see upstream_watermarks.

    Raises ConfigurationError for a column with a reserved name, and the errors of check_key_fields.
    """
    df: DataFrame = grouped._df
    keys = _keys(grouped)
    key_fields = list(df.select(*keys).schema) if keys else []
    _check_keys(df, key_fields)
    places = _places(df, keys, key_fields)
    computed = [index for index, place in enumerate(places) if place is None]
    key_indexes = [
        computed.index(index) if place is None else len(computed) + place
        for index, place in enumerate(places)
    ]
    names = [*(key_fields[index].name for index in computed), *df.columns]
    projected = _projected(df, [keys[index] for index in computed], names, upstream)
    # The key group uses the computed columns: computed twice, an expression may have two values.
    output = columns_of(projected)
    key_group = key_group_column([output[index] for index in key_indexes], max_parallelism)
    keyed = projected.select(*output[: len(names)], key_group, *output[len(names) :])
    return keyed, InputLayout(tuple(names), tuple(key_indexes)), key_fields


def _keys(grouped: Any) -> list[Column]:
    """The arguments of `groupBy`."""
    spark = grouped._df.sparkSession
    if is_connect(spark):
        return list(grouped._grouping_cols)
    return [column_of(spark, expression) for expression in elements(grouped._jgd.groupingExprs())]


def _places(
    df: DataFrame, keys: Sequence[Column], key_fields: Sequence[StructField]
) -> list[int | None]:
    """The position in `df` of each key that is a column of `df` under its own name; None for an
    expression. With Spark Connect columns have no ids, so positions and names identify columns."""
    if is_connect(df.sparkSession):
        return [_place_of(df, key, field) for key, field in zip(keys, key_fields, strict=True)]
    ids = [attribute.exprId().id() for attribute in output_of(df)]
    # Some expressions, such as `window`, become attributes of another plan.
    return [ids.index(id_) if id_ in ids else None for id_ in _identities(df, keys)]


def _projected(
    df: DataFrame,
    computed: Sequence[Column],
    names: Sequence[str],
    upstream: UpstreamWatermarks | None,
) -> DataFrame:
    """The columns `computed`, the columns of `df`, and the columns that carry the event times of
    `upstream`. `names`: the names of the computed columns and of the columns of `df`; a name that
    is used twice is changed to a unique name."""
    distinct = _distinct(names)
    if is_connect(df.sparkSession):
        return df.select(*computed, "*").toDF(*_plain(distinct))
    columns = [
        column if name == unique_name else column.alias(unique_name)
        for column, name, unique_name in zip(
            [*computed, *columns_of(df)], names, distinct, strict=True
        )
    ]
    carrying, carried = (df, ()) if upstream is None else (upstream.df, upstream.carried)
    return carrying.select(*columns, *carried)


def _place_of(df: DataFrame, key: Column, field: StructField) -> int | None:
    """The position in `df` of a key that is a column of `df` under its own name. None for an
    expression, and for a column whose name is not unique."""
    same_name = [
        index for index, name in enumerate(df.columns) if name.lower() == field.name.lower()
    ]
    if len(same_name) != 1:
        return None
    column = F.col(quoted(df.columns[same_name[0]]))
    selected = df.select(key)
    is_the_column = any(
        selected.sameSemantics(df.select(form)) for form in (column, column.alias(field.name))
    )
    return same_name[0] if is_the_column else None


def with_batch_time(keyed: DataFrame) -> DataFrame:
    """`keyed`, with the batch's time in every row: the time that Spark logs with the offsets of a
    micro-batch. So all tasks see the same time, also when the batch runs again."""
    return keyed.withColumn(BATCH_TIME_COLUMN, F.unix_millis(F.current_timestamp()))


def _identities(df: DataFrame, columns: Sequence[Column]) -> list[int | None]:
    """The attribute id of each column; None for an expression, and for an attribute that an alias
    renames."""
    if not columns:
        return []
    selected = df.select(*columns)._jdf.queryExecution().analyzed().projectList()
    return [_identity(expression) for expression in elements(selected)]


def _identity(expression: Any) -> int | None:
    inner = expression
    if expression.getClass().getSimpleName() == "Alias":
        inner = expression.child()
    is_attribute = inner.getClass().getSimpleName() == "AttributeReference"
    return inner.exprId().id() if is_attribute and inner.name() == expression.name() else None


def _distinct(names: Sequence[str]) -> list[str]:
    """`names`, with a new name for each name that Spark would confuse with an earlier name."""
    seen: set[str] = set()
    distinct = []
    for index, name in enumerate(names):
        distinct.append(f"_cowstate_column_{index}" if name.lower() in seen else name)
        seen.add(name.lower())
    return distinct


def _plain(names: Sequence[str]) -> list[str]:
    """`names`, with a new name for each name with a dot or a backtick. The client of Spark Connect
    does not quote the names of the columns that `mapInArrow` gets, so the server would read `a.b`
    as a field of the column `a`."""
    return [
        f"_cowstate_column_{index}" if set(".`") & set(name) else name
        for index, name in enumerate(names)
    ]


def _check_keys(df: DataFrame, key_fields: Sequence[StructField]) -> None:
    for name in df.columns:
        if name in _OWN_COLUMNS or name.startswith(SIDE_COLUMN):
            raise ConfigurationError(f"column {name!r} is reserved; rename it")
    check_key_fields(key_fields)


def check_key_fields(key_fields: Sequence[StructField]) -> None:
    """Raise ConfigurationError if a key column has a reserved name, or if two key columns have the
    same name. Raise KeyGroupError if the type of a key column has no stable hash."""
    names = [field.name for field in key_fields]
    for field in key_fields:
        name = field.name
        if name in RESERVED_COLUMNS:
            raise ConfigurationError(
                f"key column {name!r} has a name that state files use themselves (reserved: "
                f"{', '.join(RESERVED_COLUMNS)}); give it another name: col({name!r}).alias(…)"
            )
        if names.count(name) > 1:
            raise ConfigurationError(
                f"two key columns are called {name!r}; rename one of them: col(…).alias(…)"
            )
        _check_key_type(field)


def _check_key_type(field: StructField) -> None:
    if _is_collated(field.dataType) or not is_hashable_type(field.dataType.jsonValue()):
        raise KeyGroupError(
            f"key column {field.name!r} of type {field.dataType.simpleString()} has no stable hash "
            "and so no key group; group by columns of atomic types, or structs and arrays of these"
        )


def _is_collated(data_type: DataType) -> bool:
    """Return True if the type holds strings with a collation. Strings that are equal by a collation
    have different hashes here."""
    if isinstance(data_type, StructType):
        return any(_is_collated(field.dataType) for field in data_type.fields)
    if isinstance(data_type, ArrayType):
        return _is_collated(data_type.elementType)
    return isinstance(data_type, StringType) and data_type != StringType()


def key_group_column(keys: Sequence[Column], max_parallelism: int) -> Column:
    """The key group of a key with these columns."""
    key_hash = F.xxhash64(*keys) if keys else F.lit(SEED).cast("long")
    return F.pmod(key_hash, F.lit(max_parallelism)).cast("int").alias(KEY_GROUP_COLUMN)
