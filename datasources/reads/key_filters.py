"""Finds the key groups and files that a query with filters must read. Pure.

If filters fix every key column, only the key groups of these keys are read. If filters fix or bound
some key column, only files with such keys are read, see checkpoint_store.files.key_bounds.

Some literals change on the way from a query to the source, but Spark compares rows with the
unchanged literal. So a filter is used only if its unchanged literals are known:

    literal    change on the way                                  unchanged literal
    decimal    PySpark rounds to 28 digits                        unknown from 28 digits on
    text       Spark replaces bytes that are not UTF-8 by U+FFFD  unknown if the text has U+FFFD
    date       Spark replaces some days by the next valid day     the day, or a day that Spark may
                                                                  have replaced by this day

Spark replaces the days that java.sql.Date does not have: 5 to 14 October 1582, and days that the
time zone of the JVM skipped, such as 30 December 2011 in Samoa.
"""

from __future__ import annotations

import datetime
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from checkpoint_store.files.key_bounds import ValueRange, bound_of
from spark_state.errors import KeyGroupError
from spark_state.key_group_hash import KeyGroupAssignment

KeyValues = tuple[Any, ...]

_MOST_KEYS = 1_000
_ROUNDED_DIGITS = 28
_REPLACED_BYTES = "\ufffd"
_FIRST_GREGORIAN_DAY = datetime.date(1582, 10, 15)


@dataclass
class AskedValues:
    """Values and ranges that filters allow for top-level columns. All filters must hold."""

    values: dict[str, KeyValues] = field(default_factory=dict)
    ranges: dict[str, ValueRange] = field(default_factory=dict)

    def add(self, condition: Filter) -> None:
        """Remember a filter if the filter allows only some values or a range."""
        name = _column_of(condition)
        literals = _literals_of(condition)
        if name is None or literals is None:
            return
        if isinstance(condition, EqualTo | EqualNullSafe | In):
            asked_before = self.values.get(name, literals)
            self.values[name] = tuple(
                value for value in asked_before if any(_is_same(value, other) for other in literals)
            )
        range_before = self.ranges.get(name, ValueRange())
        try:
            self.ranges[name] = range_before.intersection(_range_of(condition, literals))
        except TypeError:
            # The values have several types, and only Spark knows the comparison.
            self.ranges[name] = ValueRange()


def _column_of(condition: Filter) -> str | None:
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    return attribute[0] if len(attribute) == 1 else None


def _literals_of(condition: Filter) -> KeyValues | None:
    """All values with which the query may compare the column: the literals of the filter, and for a
    date also the days that Spark may have replaced by this date, see the module. None if an
    unchanged literal is unknown, or if the filter is no comparison."""
    match condition:
        case In(_, literals):
            arrived = tuple(literals)
        case (
            EqualTo(_, literal)
            | EqualNullSafe(_, literal)
            | GreaterThan(_, literal)
            | GreaterThanOrEqual(_, literal)
            | LessThan(_, literal)
            | LessThanOrEqual(_, literal)
        ):
            arrived = (literal,)
        case _:
            return None
    if any(_is_unknown(literal) for literal in arrived):
        return None
    return tuple(value for literal in arrived for value in (*_days_replaced_by(literal), literal))


def _is_unknown(literal: object) -> bool:
    """True if Spark may have replaced the literal of the query by `literal`, and the literal of the
    query cannot be known, see the module."""
    if isinstance(literal, Decimal):
        return len(literal.as_tuple().digits) >= _ROUNDED_DIGITS
    return isinstance(literal, str) and _REPLACED_BYTES in literal


def _days_replaced_by(literal: object) -> list[datetime.date]:
    """The days that Spark may have replaced by `literal`, see the module. Empty if `literal` is not
    a date."""
    if not isinstance(literal, datetime.date) or isinstance(literal, datetime.datetime):
        return []
    days_before = 10 if literal == _FIRST_GREGORIAN_DAY else 1
    last = literal.toordinal()
    return [datetime.date.fromordinal(day) for day in range(max(last - days_before, 1), last)]


def _is_same(value: object, other: object) -> bool:
    """True if two values are equal. NaN equals NaN, as in Spark."""
    both_are_nan = value != value and other != other
    return value == other or both_are_nan


def _range_of(condition: Filter, literals: KeyValues) -> ValueRange:
    """A range with at least all values that a comparison allows. Both ends are inclusive. Raises
    TypeError for literals of several types."""
    bounds: list[Any] = [bound_of(literal) for literal in literals]
    if not bounds or None in bounds:
        return ValueRange()
    least, greatest = min(bounds), max(bounds)
    match condition:
        case GreaterThan() | GreaterThanOrEqual():
            return ValueRange(least=least)
        case LessThan() | LessThanOrEqual():
            return ValueRange(greatest=greatest)
    return ValueRange(least, greatest)


def key_groups_asked_for(
    values: Mapping[str, KeyValues], key_schema_json: str, max_parallelism: int
) -> list[int] | None:
    """The key groups of all keys that can be made of `values`, the allowed values by column name.
    None if `values` lacks a key column, or if there are too many keys."""
    fields = json.loads(key_schema_json)["fields"]
    if not fields or any(field["name"] not in values for field in fields):
        return None
    if '"timestamp"' in json.dumps([field["type"] for field in fields]):
        return None  # only Spark's session knows the zone of a filter's datetime
    columns = [values[field["name"]] for field in fields]
    if math.prod(map(len, columns)) > _MOST_KEYS:
        return None
    try:
        assignment = KeyGroupAssignment([field["type"] for field in fields], max_parallelism)
        return sorted({assignment.key_group(key) for key in itertools.product(*columns)})
    except KeyGroupError:
        # A value has another type than its column, and only Spark knows the comparison.
        return None
