"""Schemas from DDL text without a Spark session: what `StructType.fromDDL` asks Spark's JVM for.

sqlglot parses the text; a type that it does not know as Spark's is an error.
"""

from __future__ import annotations

import re
from typing import Any

import sqlglot
from pyspark.sql import types
from sqlglot import exp

from spark_state.errors import ConfigurationError

_ATOMIC: dict[Any, type[types.DataType]] = {
    exp.DType.BOOLEAN: types.BooleanType,
    exp.DType.TINYINT: types.ByteType,
    exp.DType.SMALLINT: types.ShortType,
    exp.DType.INT: types.IntegerType,
    exp.DType.BIGINT: types.LongType,
    exp.DType.FLOAT: types.FloatType,
    exp.DType.DOUBLE: types.DoubleType,
    exp.DType.TEXT: types.StringType,
    exp.DType.BINARY: types.BinaryType,
    exp.DType.DATE: types.DateType,
    exp.DType.TIMESTAMP: types.TimestampType,
    exp.DType.TIMESTAMPTZ: types.TimestampType,
    exp.DType.TIMESTAMPLTZ: types.TimestampType,
    exp.DType.TIMESTAMPNTZ: types.TimestampNTZType,
    exp.DType.NULL: types.NullType,
}
_DAY_TIME = ("day", "hour", "minute", "second")
_YEAR_MONTH = ("year", "month")
_SHORT_NAMES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "real": "float",
    "void": "null",
}


def schema_of(given: types.StructType | str, what: str) -> types.StructType:
    """A schema, given as one or as DDL text; `what`: whose it is, for errors.

    Raises ConfigurationError for a text that is no schema.
    """
    if isinstance(given, types.StructType):
        return given
    if not isinstance(given, str):
        raise ConfigurationError(f"{what}: {given!r} is neither a StructType nor DDL text")
    try:
        statement: Any = sqlglot.parse_one(f"CREATE TABLE t ({_spelled_out(given)})", read="spark")
        columns = statement.this.expressions
        fields = [_field(column, what) for column in columns]
    except (sqlglot.errors.SqlglotError, AttributeError) as error:
        raise ConfigurationError(f"{what}: {given!r} is not a schema: {error}") from error
    return types.StructType(fields)


def _spelled_out(text: str) -> str:
    """Spark's short names of types behind a name or a bracket, as other systems write them."""
    return re.sub(
        rf"(?i)(?<=[\s<,:])({'|'.join(_SHORT_NAMES)})\b(?=\s*(?:[,>]|$|not\b))",
        lambda match: _SHORT_NAMES[match[1].lower()],
        text,
    )


def _field(column: Any, what: str) -> types.StructField:
    not_null = any(
        isinstance(each.kind, exp.NotNullColumnConstraint) for each in column.constraints
    )
    return types.StructField(column.name, _type(column.kind, what), not not_null)


def _type(kind: Any, what: str) -> types.DataType:
    named = kind.this if isinstance(kind, exp.DataType) else None
    inner = kind.expressions if isinstance(kind, exp.DataType) else []
    if named in _ATOMIC:
        return _ATOMIC[named]()
    if isinstance(named, exp.Interval):
        return _interval(named.text("unit") or named.args["unit"].sql(), kind, what)
    if named is exp.DType.DECIMAL:
        return types.DecimalType(*(int(each.this.this) for each in inner))
    if named is exp.DType.ARRAY:
        return types.ArrayType(_type(inner[0], what))
    if named is exp.DType.MAP:
        return types.MapType(_type(inner[0], what), _type(inner[1], what))
    if named is exp.DType.STRUCT:
        return types.StructType([_field(column, what) for column in inner])
    raise _unknown(kind, what)


def _interval(unit: str, kind: Any, what: str) -> types.DataType:
    first, _, last = unit.lower().partition(" to ")
    for names, interval_type in (
        (_DAY_TIME, types.DayTimeIntervalType),
        (_YEAR_MONTH, types.YearMonthIntervalType),
    ):
        if first in names and (last or first) in names[names.index(first) :]:
            return interval_type(names.index(first), names.index(last or first))
    raise _unknown(kind, what)


def _unknown(kind: Any, what: str) -> ConfigurationError:
    return ConfigurationError(f"{what}: type {kind} is not known here; give a StructType instead")
