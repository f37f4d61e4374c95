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
_MOST_DIGITS = 38
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
    """Return a schema, given as a StructType or as DDL text. `what`: owner of the schema, for
    errors. Raises ConfigurationError for a text that is no schema."""
    if isinstance(given, types.StructType):
        return given
    if not isinstance(given, str):
        raise ConfigurationError(f"{what}: {given!r} is neither a StructType nor DDL text")
    try:
        statements = sqlglot.parse(f"CREATE TABLE t ({_spelled_out(given)})", read="spark")
    except sqlglot.errors.ParseError as error:
        # sqlglot's message marks the place with escape codes of a terminal.
        place = error.errors[0]["highlight"] if error.errors else ""
        raise _no_schema(given, what, f"cannot read it at {place!r}") from error
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


def _spelled_out(text: str) -> str:
    """Replace Spark's short names of types, after a name or a bracket, by the names in other
    systems."""
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
        return _decimal(kind, what)
    if named is exp.DType.ARRAY and len(inner) == 1:
        return types.ArrayType(_type(inner[0], what))
    if named is exp.DType.MAP and len(inner) == 2:
        return types.MapType(_type(inner[0], what), _type(inner[1], what))
    if named is exp.DType.STRUCT:
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
