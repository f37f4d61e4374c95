"""Schemas from DDL text without a Spark session; `StructType.fromDDL` needs Spark's JVM.

sqlglot parses the text; a type unknown here is an error.
"""

from __future__ import annotations

import re
from typing import Any

import sqlglot
from pyspark.sql import types
from sqlglot import exp

from spark_state.errors import ConfigurationError

_Kind: Any = exp.DataType.Type
_ATOMIC: dict[Any, type[types.DataType]] = {
    _Kind.BOOLEAN: types.BooleanType,
    _Kind.TINYINT: types.ByteType,
    _Kind.SMALLINT: types.ShortType,
    _Kind.INT: types.IntegerType,
    _Kind.BIGINT: types.LongType,
    _Kind.FLOAT: types.FloatType,
    _Kind.DOUBLE: types.DoubleType,
    _Kind.TEXT: types.StringType,
    _Kind.BINARY: types.BinaryType,
    _Kind.DATE: types.DateType,
    _Kind.TIMESTAMP: types.TimestampType,
    _Kind.TIMESTAMPTZ: types.TimestampType,
    _Kind.TIMESTAMPLTZ: types.TimestampType,
    _Kind.TIMESTAMPNTZ: types.TimestampNTZType,
    _Kind.NULL: types.NullType,
}
_MOST_DIGITS = 38
_DAY_TIME = ("day", "hour", "minute", "second")
_YEAR_MONTH = ("year", "month")
# Spark's name of the type `null`, after a name or a bracket.
_VOID = re.compile(r"(?i)(?<=[\s<,:])void\b(?=\s*(?:[,>]|$|not\b))")


def schema_of(given: types.StructType | str, what: str) -> types.StructType:
    """Return a schema, given as a StructType or as DDL text. `what`: names the schema in errors.
    Raises ConfigurationError for a text that is no schema."""
    if isinstance(given, types.StructType):
        return given
    if not isinstance(given, str):
        raise ConfigurationError(f"{what}: {given!r} is neither a StructType nor DDL text")
    try:
        statements = sqlglot.parse(f"CREATE TABLE t ({_VOID.sub('null', given)})", read="spark")
    except sqlglot.errors.SqlglotError as error:
        raise _no_schema(given, what, "cannot read it") from error
    table: Any = statements[0]
    if len(statements) > 1 or not isinstance(table.this, exp.Schema):
        raise _no_schema(given, what, "it has no columns")
    for column in table.this.expressions:
        if not isinstance(column, exp.ColumnDef) or column.kind is None:
            raise _no_schema(given, what, f"{column.name!r} has no type")
    return types.StructType([_field(column, what) for column in table.this.expressions])


def _no_schema(given: str, what: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{what}: {given!r} is not a schema, {why}; write a name and a type for each column, such "
        'as "name string, n long", or give a StructType'
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
    if named is _Kind.DECIMAL:
        return _decimal(kind, what)
    if named is _Kind.ARRAY and len(inner) == 1:
        return types.ArrayType(_type(inner[0], what))
    if named is _Kind.MAP and len(inner) == 2:
        return types.MapType(_type(inner[0], what), _type(inner[1], what))
    if named is _Kind.STRUCT:
        return types.StructType([_field(column, what) for column in inner])
    raise _unknown(kind, what)


def _decimal(kind: Any, what: str) -> types.DataType:
    digits = [part.sql() for part in kind.expressions]
    if not all(map(str.isdigit, digits)):
        raise _unknown(kind, what)
    precision, scale = (*map(int, digits), *(10, 0)[len(digits) :])
    if not scale <= precision <= _MOST_DIGITS:
        raise _unknown(kind, what)
    return types.DecimalType(precision, scale)


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
    return ConfigurationError(
        f"{what}: type {kind.sql('spark')} is not known here; give a StructType instead"
    )
