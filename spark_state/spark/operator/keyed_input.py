"""The input of an operator: rows with their key, and with the key group that says who gets them.

    computed key columns, all columns of the grouped DataFrame, _cowstate_key_group

A key is what `groupBy` was called with: columns of the DataFrame, which are found again by their
identity and not by their name, or expressions, which are computed. On the way to the operator Spark
and Arrow find columns by name, so of several with one name all but the first get another one for
that way. The rows that a processor sees have the names that the user gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import StringType, StructField, StructType

from spark_state.errors import ConfigurationError, KeyGroupError
from spark_state.key_group_assignment import SEED, is_hashable_type
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.state_rows import RESERVED_COLUMNS
from spark_state.processor.key_grouping import InputLayout
from spark_state.processor.schemas import arrow_schema

KEY_GROUP_COLUMN = "_cowstate_key_group"


def keyed_input(
    grouped: Any, max_parallelism: int
) -> tuple[DataFrame, InputLayout, list[StructField]]:
    """The input of an operator on what `df.groupBy(…)` returned, where it holds what, and the
    fields of its key.

    Raises ConfigurationError and KeyGroupError for keys that no state can have.
    """
    df: DataFrame = grouped._df
    spark = df.sparkSession
    columns = [_column(spark, expression) for expression in _elements(grouped._jgd.groupingExprs())]
    key_fields = list(df.select(*columns).schema) if columns else []
    _check_keys(df, key_fields)
    attributes = _output(df)
    places = [attribute.exprId().id() for attribute in attributes]
    identities = _identities(df, columns)
    computed = [index for index, identity in enumerate(identities) if identity is None]
    key_indexes = [
        computed.index(index) if identity is None else len(computed) + places.index(identity)
        for index, identity in enumerate(identities)
    ]
    inputs = [columns[index] for index in computed]
    inputs += [_column(spark, attribute) for attribute in attributes]
    names = [*(key_fields[index].name for index in computed), *df.columns]
    distinct = [
        column if name == on_the_way else column.alias(on_the_way)
        for column, name, on_the_way in zip(inputs, names, _distinct(names), strict=True)
    ]
    projected = df.select(*distinct)
    # From the columns as they were computed: an expression may give something else a second time.
    output = [_column(spark, attribute) for attribute in _output(projected)]
    key_group = _key_group([output[index] for index in key_indexes], max_parallelism)
    keyed = projected.select(*output, key_group)
    return keyed, InputLayout(tuple(names), tuple(key_indexes)), key_fields


def key_columns(fields: Sequence[StructField]) -> KeyColumns:
    """The key as state tables have it."""
    return KeyColumns(
        names=tuple(field.name for field in fields),
        arrow_types=tuple(field.type for field in arrow_schema(StructType(list(fields)))),
        type_names=tuple(str(field.dataType.jsonValue()) for field in fields),
    )


def _column(spark: SparkSession, expression: Any) -> Column:
    jvm: Any = spark._jvm
    return ClassicColumn(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def _output(df: DataFrame) -> list[Any]:
    """The attributes that a DataFrame has, in order."""
    return _elements(df._jdf.queryExecution().analyzed().output())


def _elements(sequence: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [sequence.apply(index) for index in range(sequence.size())]


def _identities(df: DataFrame, columns: Sequence[Column]) -> list[int | None]:
    """Which attribute of the input each column is, under its own name; None for an expression."""
    if not columns:
        return []
    selected = df.select(*columns)._jdf.queryExecution().analyzed().projectList()
    return [_identity(expression) for expression in _elements(selected)]


def _identity(expression: Any) -> int | None:
    inner = expression
    if expression.getClass().getSimpleName() == "Alias":
        inner = expression.child()
    is_attribute = inner.getClass().getSimpleName() == "AttributeReference"
    return inner.exprId().id() if is_attribute and inner.name() == expression.name() else None


def _distinct(names: Sequence[str]) -> list[str]:
    """`names`, with another one for each that Spark would not tell from one before it."""
    seen: set[str] = set()
    distinct = []
    for index, name in enumerate(names):
        distinct.append(f"_cowstate_column_{index}" if name.lower() in seen else name)
        seen.add(name.lower())
    return distinct


def _check_keys(df: DataFrame, key_fields: Sequence[StructField]) -> None:
    if KEY_GROUP_COLUMN in df.columns:
        raise ConfigurationError(f"column {KEY_GROUP_COLUMN!r} is reserved; rename it")
    names = [field.name for field in key_fields]
    for field in key_fields:
        name = field.name
        if name in RESERVED_COLUMNS:
            raise ConfigurationError(
                f"key column {name!r} has a name that state files use themselves (reserved: "
                f"{', '.join(RESERVED_COLUMNS)}); group by it under another: col({name!r}).alias(…)"
            )
        if names.count(name) > 1:
            raise ConfigurationError(
                f"two key columns are called {name!r}; rename one of them: col(…).alias(…)"
            )
        _check_key_type(field)


def _check_key_type(field: StructField) -> None:
    type_name = str(field.dataType.jsonValue())
    collated = isinstance(field.dataType, StringType) and field.dataType != StringType()
    if collated or not is_hashable_type(type_name):
        raise KeyGroupError(
            f"key column {field.name!r} of type {field.dataType.simpleString()} has no stable hash "
            "and so no key group; group by columns of atomic types: a field of the struct, or a "
            "cast"
        )


def _key_group(keys: Sequence[Column], max_parallelism: int) -> Column:
    key_hash = F.xxhash64(*keys) if keys else F.lit(SEED).cast("long")
    return F.pmod(key_hash, F.lit(max_parallelism)).cast("int").alias(KEY_GROUP_COLUMN)
