"""Option `deleteWhen`: rows that delete their key.

The option is the name of a boolean column, or a predicate in Spark's SQL, with three-valued logic:

    columns       name, `a name`; in upper or lower case
    literals      1, 1.5, 1e3, 'text', TRUE, FALSE, NULL,
                  DATE '2026-01-31', TIMESTAMP '2026-01-31 12:00:00', TIMESTAMP_NTZ '…'
    comparisons   = == <> != < <= > >= <=>, [NOT] BETWEEN … AND …, [NOT] IN (…),
                  IS [NOT] NULL, [NOT] LIKE '…' (escape character: a backslash)
    conditions    AND, OR, NOT, parentheses
    arithmetic    + - *

As in Spark, NaN equals NaN and is greater than any other number, and an overflow is an error.
Unlike in Spark, a TIMESTAMP without a zone is UTC whatever the session's zone is, and nothing is
cast between texts and other types. The table stores the columns of a condition like all other
columns.

Only this module imports sqlglot.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute
import sqlglot
from sqlglot import expressions as sql

from datasources.options.table_options import column_named
from spark_state.errors import ConfigurationError

Rows = pa.RecordBatch | pa.Table
DeleteCondition = Callable[[Rows], Any]

# pyarrow's type stubs reject arguments that its compute functions accept, such as scalars.
pc: Any = pyarrow.compute

_OPTION = "option deleteWhen"
_ALLOWED = (
    "allowed are columns, literals (numbers, 'text', TRUE, FALSE, NULL, DATE '…', TIMESTAMP '…', "
    "TIMESTAMP_NTZ '…'), = <> != < <= > >= <=>, BETWEEN, IN (…), IS NULL, LIKE '…', AND, OR, NOT, "
    "+ - * and parentheses"
)
_Value = Callable[[Rows], Any]
# Part of a parsed predicate. Any, because sqlglot has renamed its base classes between releases.
_Node = Any
_LONG = 1 << 63
_ARGUMENTS = {"this", "expression", "expressions", "low", "high", "to", "is_string", "negate"}


def compile_delete_condition(text: str, schema: pa.Schema) -> DeleteCondition:
    """Compile the condition into a function that flags the deletions among rows of `schema`.

    The function returns an array or a chunked array of booleans without nulls. Raises
    ConfigurationError for a part that is not allowed, a missing column, and types that cannot be
    combined. The compiled function raises ConfigurationError only for an overflow.
    """
    compiler = _Compiler(schema)
    value = compiler.condition(_parsed(text, schema))

    def is_delete(rows: Rows) -> Any:
        try:
            flags = value(rows)
        except pa.ArrowException as error:
            raise ConfigurationError(f"{_OPTION} {text!r} fails for a row: {error}") from error
        if isinstance(flags, pa.Scalar):
            return pa.repeat(pa.scalar(flags.as_py() is True), rows.num_rows)
        return pc.fill_null(flags, False)

    return is_delete


def _parsed(text: str, schema: pa.Schema) -> _Node:
    if any(text.strip().lower() == name.lower() for name in schema.names):
        return sql.column(text.strip())
    try:
        parsed = sqlglot.parse(text, dialect="spark")
    except sqlglot.ParseError as error:
        places = [
            f" at {place['highlight']!r} (character {place['col']})" for place in error.errors[:1]
        ]
        raise _no_predicate(text, f"it cannot be parsed{''.join(places)}") from error
    except sqlglot.errors.TokenError as error:
        raise _no_predicate(text, "a quote has no end, or a character is not allowed") from error
    if len(parsed) != 1 or parsed[0] is None:
        raise ConfigurationError(f"{_OPTION} {text!r} is not one predicate; {_ALLOWED}")
    return parsed[0]


def _no_predicate(text: str, problem: str) -> ConfigurationError:
    return ConfigurationError(f"{_OPTION} {text!r} is not a predicate: {problem}; {_ALLOWED}")


class _Compiler:
    """Compiler of the parts of a predicate into functions of rows. Each function is tried at once
    on a row of nulls. So types that cannot be combined are found early, and the error names the
    smallest part with such types."""

    def __init__(self, schema: pa.Schema) -> None:
        nulls = [pa.nulls(1, field.type) for field in schema]
        self._nulls = pa.RecordBatch.from_arrays(nulls, schema.names)

    def condition(self, node: _Node) -> _Value:
        """Compile a part whose values must be true, false or null."""
        value = self.value(node)
        value_type = value(self._nulls).type
        if pa.types.is_null(value_type):
            return _constant(pa.scalar(None, pa.bool_()))
        if not pa.types.is_boolean(value_type):
            raise ConfigurationError(
                f"{_OPTION}: {_text(node)} is {_type_text(value_type)}, neither true nor false; "
                "compare it with something"
            )
        return value

    def value(self, node: _Node) -> _Value:
        compile_part = _PARTS.get(type(node))
        extra = {name for name, argument in node.args.items() if argument} - _ARGUMENTS
        if compile_part is None or extra:
            raise ConfigurationError(f"{_OPTION}: {_text(node)} is not allowed here; {_ALLOWED}")
        value = compile_part(self, node)
        if node.args.get("negate"):
            value = _applied(pc.invert, value)
        try:
            value(self._nulls)
        except pa.ArrowException as error:
            raise ConfigurationError(
                f"{_OPTION}: {_text(node)} cannot be computed{self._types_in(node)}. Values that "
                "are compared or computed with each other must be of one kind: numbers, texts or "
                f"times; {_ALLOWED}"
            ) from error
        return value

    def _types_in(self, node: _Node) -> str:
        """The types of a part's columns, for messages."""
        schema = self._nulls.schema
        columns = node.find_all(sql.Column)
        names = dict.fromkeys(column_named(part.name, schema.names, _OPTION) for part in columns)
        types = [f"{name} is {_type_text(schema.field(name).type)}" for name in names]
        return f": {', '.join(types)}" if types else ""

    def column(self, node: _Node) -> _Value:
        name = column_named(node.name, self._nulls.schema.names, f"{_OPTION} names")
        return lambda rows: rows.column(name)

    def connected(self, node: _Node) -> _Value:
        """Compile AND or OR. A chain of any length needs no recursion."""
        function = pc.and_kleene if isinstance(node, sql.And) else pc.or_kleene
        conditions = [self.condition(part) for part in node.flatten()]
        return lambda rows: reduce(function, (condition(rows) for condition in conditions))

    def binary(self, node: _Node) -> _Value:
        """Compile a comparison of two values, or arithmetic."""
        function = _BINARY[type(node)]
        return _applied(function, self.value(node.this), self.value(node.expression))

    def is_null(self, node: _Node) -> _Value:
        if not isinstance(node.expression, sql.Null):
            raise ConfigurationError(f"{_OPTION}: {_text(node)} is not allowed here; {_ALLOWED}")
        return _applied(pc.is_null, self.value(node.this))

    def in_list(self, node: _Node) -> _Value:
        """Compile IN. The result is true if a value of the list equals the sought value; otherwise
        null if the sought value or a value of the list is null; otherwise false."""
        sought = self.value(node.this)
        others = [self.value(other) for other in node.expressions]

        def contained(rows: Rows) -> Any:
            value = sought(rows)
            return reduce(pc.or_kleene, (_equal(value, other(rows)) for other in others))

        return contained

    def between(self, node: _Node) -> _Value:
        value = self.value(node.this)
        low, high = self.value(node.args["low"]), self.value(node.args["high"])
        return _applied(
            pc.and_kleene,
            _applied(_not_less, value, low),
            _applied(_not_less, high, value),
        )

    def like(self, node: _Node) -> _Value:
        """Compile LIKE with a literal pattern."""
        pattern = node.expression
        if not (isinstance(pattern, sql.Literal) and pattern.is_string):
            raise ConfigurationError(
                f"{_OPTION}: {_text(node)} needs a text as pattern; {_ALLOWED}"
            )
        value = self.value(node.this)
        return lambda rows: pc.match_like(value(rows), pattern.name)


def _type_text(arrow_type: pa.DataType) -> str:
    """The name of a type in Spark."""
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(arrow_type, prefer_timestamp_ntz=True).simpleString()


def _applied(function: Any, *values: _Value) -> _Value:
    return lambda rows: function(*(value(rows) for value in values))


def _constant(scalar: Any) -> _Value:
    return lambda _: scalar


def _text(node: _Node) -> str:
    return repr(node.sql(dialect="spark"))


def _literal(_: _Compiler, node: _Node) -> _Value:
    text = node.name
    if node.args["is_string"]:
        return _constant(pa.scalar(text))
    if text.isdigit() and int(text) < _LONG:
        return _constant(pa.scalar(int(text), pa.int64()))
    if "e" in text.lower():
        return _constant(pa.scalar(float(text)))
    try:
        return _constant(pa.scalar(Decimal(text)))
    except (ArithmeticError, pa.ArrowException) as error:
        raise ConfigurationError(f"{_OPTION}: {text} is not a number of 38 digits") from error


def _typed_literal(_: _Compiler, node: _Node) -> _Value:
    """Compile a literal with a type, such as DATE '…', which sqlglot parses as a Cast. The text
    CAST(…) does not come here: in Spark's dialect, sqlglot parses this text as a TryCast."""
    text = node.this.name
    try:
        if node.to.is_type("date"):
            return _constant(pa.scalar(datetime.date.fromisoformat(text.strip()), pa.date32()))
        moment = datetime.datetime.fromisoformat(text.strip())
        if node.to.is_type("timestamptz"):
            moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
            return _constant(pa.scalar(moment, pa.timestamp("us", "UTC")))
        if node.to.is_type("timestampntz") and moment.tzinfo is None:
            return _constant(pa.scalar(moment, pa.timestamp("us")))
    except ValueError as error:
        raise ConfigurationError(f"{_OPTION}: {_text(node)}: {error}; {_ALLOWED}") from error
    raise ConfigurationError(f"{_OPTION}: {_text(node)} is not allowed here; {_ALLOWED}")


def _comparison(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Extend `compare` to nulls of any type, and compare floating-point numbers as doubles."""

    def compared(left: Any, right: Any) -> Any:
        if pa.types.is_null(left.type) or pa.types.is_null(right.type):
            return pa.scalar(None, pa.bool_())
        types = (left.type, right.type)
        if any(map(pa.types.is_floating, types)) and all(map(_is_number, types)):
            left, right = (side.cast(pa.float64(), safe=False) for side in (left, right))
        return compare(left, right)

    return compared


def _is_number(data_type: pa.DataType) -> bool:
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(check(data_type) for check in checks)


@_comparison
def _equal(left: Any, right: Any) -> Any:
    equal = pc.equal(left, right)
    if not pa.types.is_floating(left.type):
        return equal
    return pc.or_kleene(equal, pc.and_kleene(pc.is_nan(left), pc.is_nan(right)))


@_comparison
def _less(left: Any, right: Any) -> Any:
    less = pc.less(left, right)
    if not pa.types.is_floating(left.type):
        return less
    return pc.or_kleene(less, pc.and_kleene(pc.invert(pc.is_nan(left)), pc.is_nan(right)))


def _not_less(left: Any, right: Any) -> Any:
    return pc.invert(_less(left, right))


def _same(left: Any, right: Any) -> Any:
    both_null = pc.and_kleene(pc.is_null(left), pc.is_null(right))
    return pc.or_kleene(pc.fill_null(_equal(left, right), False), both_null)


_BINARY: Mapping[type[Any], Callable[[Any, Any], Any]] = {
    sql.EQ: _equal,
    sql.NEQ: lambda left, right: pc.invert(_equal(left, right)),
    sql.LT: _less,
    sql.GT: lambda left, right: _less(right, left),
    sql.LTE: lambda left, right: _not_less(right, left),
    sql.GTE: _not_less,
    sql.NullSafeEQ: _same,
    sql.Add: pc.add_checked,
    sql.Sub: pc.subtract_checked,
    sql.Mul: pc.multiply_checked,
}
_PARTS: Mapping[type[Any], Callable[[_Compiler, Any], _Value]] = {
    **dict.fromkeys(_BINARY, _Compiler.binary),
    sql.And: _Compiler.connected,
    sql.Or: _Compiler.connected,
    sql.Not: lambda compiler, node: _applied(pc.invert, compiler.condition(node.this)),
    sql.Paren: lambda compiler, node: compiler.value(node.this),
    sql.Neg: lambda compiler, node: _applied(pc.negate_checked, compiler.value(node.this)),
    sql.Is: _Compiler.is_null,
    sql.In: _Compiler.in_list,
    sql.Between: _Compiler.between,
    sql.Like: _Compiler.like,
    sql.Column: _Compiler.column,
    sql.Literal: _literal,
    sql.Boolean: lambda _, node: _constant(pa.scalar(bool(node.this), pa.bool_())),
    sql.Null: lambda _, __: _constant(pa.scalar(None, pa.null())),
    sql.Cast: _typed_literal,
}
